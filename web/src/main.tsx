import { render } from 'preact';
import { Answers } from './state/answers';
import { App } from './state/app';
import { Library } from './state/library';
import { ServerWatch } from './state/watch';
import { Page } from './ui/Page';
import './styles/page.css';

const app = new App(document.baseURI);
const library = new Library(app);
const watch = new ServerWatch(app);
const answers = new Answers(app, library, watch.look, () => {
  app.setServer({ reachable: null });
  watch.look();
});

const root = document.getElementById('app');
if (root !== null) render(<Page parts={{ app, library, answers, watch }} />, root);
void library.load();
watch.look();
