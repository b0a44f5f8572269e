// Start the summary plots once BokehJS is loaded.

import { startPlots } from './plots.js';

addEventListener('bokehready', startPlots, { once: true });
