// One topic of the timeline, with the state that all topics share.

export class Part {
  constructor(timeline) {
    this.timeline = timeline;
    const { store, words, root, model, element, scroller } = timeline;
    Object.assign(this, { store, words, root, model, element, scroller });
  }
}
