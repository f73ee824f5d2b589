import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { asNumber, asString } from '../json';
import { defaultSampling, type Sampling } from '../model';
import { readTools } from '../state/request';
import type { Language, Theme } from '../state/storage';
import { languages } from '../strings';
import { useApp, useParts, useStrings } from './context';
import { Dialog } from './Dialog';
import { NumberField, SelectField, TextField } from './fields';

function Section({
  title,
  hint,
  children,
}: {
  title: string;
  hint?: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <fieldset>
      <legend>{title}</legend>
      {hint && <p class="hint">{hint}</p>}
      {children}
    </fieldset>
  );
}

type SetSampling = (change: Partial<Sampling>) => void;

function Numbers({ sampling, set }: { sampling: Sampling; set: SetSampling }): JSX.Element {
  const strings = useStrings();
  const defaults = useApp((state) => state.server.props?.defaults ?? {});
  const placeholder = (name: string): string => String(asNumber(defaults[name]) ?? strings.serverDefault);
  const whole = { whole: true };
  return (
    <div class="grid">
      <NumberField
        label={strings.temperature}
        value={sampling.temperature}
        min={0}
        max={5}
        placeholder={placeholder('temperature')}
        onChange={(temperature) => set({ temperature })}
      />
      <NumberField
        label={strings.topP}
        value={sampling.topP}
        min={0}
        max={1}
        placeholder={placeholder('top_p')}
        onChange={(topP) => set({ topP })}
      />
      <NumberField
        label={strings.topK}
        value={sampling.topK}
        min={0}
        max={1000000}
        {...whole}
        placeholder={placeholder('top_k')}
        onChange={(topK) => set({ topK })}
      />
      <NumberField
        label={strings.minP}
        value={sampling.minP}
        min={0}
        max={1}
        placeholder={placeholder('min_p')}
        onChange={(minP) => set({ minP })}
      />
      <NumberField
        label={strings.seed}
        value={sampling.seed}
        min={0}
        max={Number.MAX_SAFE_INTEGER}
        {...whole}
        placeholder={placeholder('seed')}
        onChange={(seed) => set({ seed })}
      />
      <NumberField
        label={strings.maxTokens}
        value={sampling.maxTokens}
        min={1}
        max={10000000}
        {...whole}
        placeholder={placeholder('max_tokens')}
        onChange={(maxTokens) => set({ maxTokens })}
      />
    </div>
  );
}

function Choices({ sampling, set }: { sampling: Sampling; set: SetSampling }): JSX.Element {
  const strings = useStrings();
  const defaults = useApp((state) => state.server.props?.defaults ?? {});
  const unset = (name: string, names: Record<string, string>): string => {
    const value = asString(defaults[name]) ?? asNumber(defaults[name])?.toString();
    return value === undefined ? strings.serverDefault : `${strings.serverDefault} (${names[value] ?? value})`;
  };
  return (
    <div class="grid">
      <SelectField
        label={strings.effort}
        value={sampling.effort}
        unset={unset('reasoning_effort', strings.effortNames)}
        names={strings.effortNames}
        onChange={(effort) => set({ effort })}
      />
      <SelectField
        label={strings.loopGuard}
        value={sampling.loopGuard}
        unset={unset('loop_guard', strings.loopGuardNames)}
        names={strings.loopGuardNames}
        onChange={(loopGuard) => set({ loopGuard })}
      />
    </div>
  );
}

function ToolsField({ sampling, set }: { sampling: Sampling; set: SetSampling }): JSX.Element {
  const strings = useStrings();
  const [text, setText] = useState(sampling.tools);
  const good = text.trim() === '' || readTools(text) !== null;
  const change = (next: string): void => {
    setText(next);
    if (next.trim() === '' || readTools(next) !== null) set({ tools: next.trim() });
  };
  return (
    <TextField
      label={strings.tools}
      rows={3}
      code
      value={text}
      placeholder={strings.toolsHint}
      problem={good ? '' : strings.toolsWrong}
      onChange={change}
    />
  );
}

function SamplingFields(): JSX.Element {
  const strings = useStrings();
  const { app, library } = useParts();
  const sampling = useApp(() => app.sampling());
  const [generation, setGeneration] = useState(0);
  const set: SetSampling = (change) => library.setSampling({ ...app.sampling(), ...change });
  const reset = (): void => {
    library.setSampling(defaultSampling);
    setGeneration(generation + 1);
  };
  const lines = (text: string): string[] => text.split('\n').filter((line) => line !== '');
  return (
    <div key={generation} class="sampling">
      <TextField
        label={strings.systemPrompt}
        rows={3}
        value={sampling.systemPrompt}
        placeholder={strings.systemPromptHint}
        onChange={(systemPrompt) => set({ systemPrompt })}
      />
      <Choices sampling={sampling} set={set} />
      <Numbers sampling={sampling} set={set} />
      <TextField
        label={strings.stopStrings}
        rows={2}
        code
        initial={sampling.stop.join('\n')}
        onChange={(text) => set({ stop: lines(text) })}
      />
      <ToolsField sampling={sampling} set={set} />
      <button type="button" class="button" onClick={reset}>
        {strings.reset}
      </button>
    </div>
  );
}

export function SettingsDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const strings = useStrings();
  const { app } = useParts();
  const { theme, language } = useApp((state) => state.preferences);
  const { models, model } = useApp((state) => state.server);
  const languageNames = Object.fromEntries(
    Object.entries(languages).map(([tag, { languageName }]) => [tag, languageName]),
  );
  const modelNames = Object.fromEntries(models.map((name) => [name, name]));
  return (
    <Dialog title={strings.settings} class="side" onClose={onClose}>
      <Section title={strings.appearance}>
        <div class="grid">
          <SelectField<Theme>
            label={strings.theme}
            value={theme}
            names={strings.themeNames}
            onChange={(choice) => app.setPreferences({ theme: choice ?? 'system' })}
          />
          <SelectField
            label={strings.language}
            value={language === 'system' ? null : language}
            unset={strings.languageSystem}
            names={languageNames as Record<Exclude<Language, 'system'>, string>}
            onChange={(choice) => app.setPreferences({ language: choice ?? 'system' })}
          />
        </div>
      </Section>
      <Section title={strings.model} hint={strings.samplingFor}>
        {models.length > 1 ? (
          <SelectField
            label={strings.model}
            value={model}
            names={modelNames}
            onChange={(choice) => app.setServer({ model: choice ?? '' })}
          />
        ) : (
          <p class="model-name">{model}</p>
        )}
        <SamplingFields />
      </Section>
    </Dialog>
  );
}
