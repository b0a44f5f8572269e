// Starts the summary plots, once BokehJS is there.

import { startPlots } from './plots.js';

addEventListener('bokehready', startPlots, { once: true });
