// Islands of the web controller's pages. Every page works without them.
import { compareSelection } from "./compare";
import { editor } from "./editor";
import { provideFigures } from "./figures";
import { busyForms } from "./forms";
import { live } from "./live";
import { keepDetails } from "./permalink";
import { runProgress } from "./run";

provideFigures();
busyForms();
keepDetails();
compareSelection();
editor();
live();
runProgress();
