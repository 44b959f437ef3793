// What a page needs to draw its figures: the one function of vega-embed.
export { default as embed } from "vega-embed";
