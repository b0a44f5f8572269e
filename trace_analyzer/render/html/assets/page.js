// Start the parts that work without the timeline and before it: folds, cards, tables and tooltips.

import { startCards } from './cards.js';
import { startFolds } from './folds.js';
import { startTables } from './tables.js';
import { startTips } from './tips.js';

startFolds();
startCards();
startTables();
startTips();
