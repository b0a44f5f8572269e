// Starts the summary plots, once BokehJS is there.

import { startPlots } from './plots.js';

startPlots();
