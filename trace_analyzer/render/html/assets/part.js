// One topic of the timeline, with what all of them share.

export class Part {
  constructor(timeline) {
    this.timeline = timeline;
    const { store, words, root, model, element, scroller } = timeline;
    Object.assign(this, { store, words, root, model, element, scroller });
  }
}
