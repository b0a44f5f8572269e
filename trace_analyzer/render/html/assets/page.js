// Starts what works without the timeline and before it: tables and tooltips.

import { startTables } from './tables.js';
import { startTips } from './tips.js';

startTables();
startTips();
