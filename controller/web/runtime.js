// Figure runtime of a page: the embed function of vega-embed.
export { default as embed } from "vega-embed";
