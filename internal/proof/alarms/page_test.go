package alarms_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const pageFile = "../../../docs/alerts.md"

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recordedFile is what the tests read of a file of promtool.
type recordedFile struct {
	Tests []struct {
		Name   string
		Checks []struct {
			At      string                    `yaml:"eval_time"`
			Samples []struct{ Labels string } `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

// firings are the times at which alarms begin to fire, by the incident and the alarm with its severity. The checks of a
// recorded file are at each change.
func firings(t *testing.T, pattern string) map[string]map[string]time.Duration {
	t.Helper()
	files, err := filepath.Glob(deployed + "alerts/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files %s, %v", len(files), pattern, err)
	}
	all := map[string]map[string]time.Duration{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var recorded recordedFile
		if err := yaml.Unmarshal(text, &recorded); err != nil {
			t.Fatal(err)
		}
		for _, part := range recorded.Tests {
			first := map[string]time.Duration{}
			for _, c := range part.Checks {
				at, err := time.ParseDuration(c.At)
				if err != nil {
					t.Fatal(err)
				}
				for _, sample := range c.Samples {
					alarm, severity := labelIn(sample.Labels, "alertname"), labelIn(sample.Labels, "severity")
					if _, known := first[alarm+"/"+severity]; !known && (at >= quiet || pattern == "server_test.yaml") {
						first[alarm+"/"+severity] = at - quiet
					}
				}
			}
			all[part.Name] = first
		}
	}
	return all
}

// labelIn is the value of a label in a selector.
func labelIn(labels, name string) string {
	m := regexp.MustCompile(name + `="(\w+)"`).FindStringSubmatch(labels)
	if m == nil {
		return ""
	}
	return m[1]
}

// table is the table of the page with the seconds after which the alarms of each incident fire.
func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| incident | | alarms, and the seconds after its beginning |\n|---|---|---|\n")
	recorded := firings(t, "incident_*_test.yaml")
	for _, c := range incidents {
		var alarms []string
		first := recorded[c.name]
		for _, alarm := range sortedKeys(first) {
			name, severity, _ := strings.Cut(alarm, "/")
			alarms = append(alarms, fmt.Sprintf("%s %s %.0f", strings.TrimPrefix(name, "Changefeed"), severity,
				first[alarm].Seconds()))
		}
		number, _, _ := strings.Cut(c.name, "_")
		fmt.Fprintf(&b, "| %s | %s | %s |\n", number, c.about, cmp.Or(strings.Join(alarms, ", "), "none"))
	}
	return b.String()
}

// The page has the times of the recordings.
func TestThePageHasTheRecordedTimes(t *testing.T) {
	before, rest, ok := strings.Cut(readPage(t), "<!-- recorded -->\n")
	old, after, also := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !also {
		t.Fatal("the page has no place for the recorded times")
	}
	want := "\n" + table(t) + "\n"
	if *update {
		text := before + "<!-- recorded -->\n" + want + "<!-- end -->\n" + after
		if err := os.WriteFile(pageFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != want {
		t.Errorf("the recordings say, and -update writes:\n%s", want)
	}
}

// alarmRow is a row of the table of alarms.
var alarmRow = regexp.MustCompile(`(?m)^\| (Changefeed\w+) \| ([^|]*) \| ([^|]*) \| [^|]* \| ([^|]*) \| [^|]* \|$`)

// The table has each alarm with its severities, its times, its seconds, and the incidents in which it fires.
func TestThePageHasEachAlarm(t *testing.T) {
	severities, exprs, in := map[string][]string{}, map[string]string{}, map[string][]string{}
	for _, r := range readRules() {
		if r.Alert == "" {
			continue
		}
		word := r.Labels["severity"]
		if r.For != "" {
			word += " for " + r.For
		}
		severities[r.Alert] = append(severities[r.Alert], word)
		exprs[r.Alert] += r.Expr + "\n"
	}
	number := regexp.MustCompile(`^\d+`)
	for _, pattern := range []string{"incident_*_test.yaml", "server_test.yaml"} {
		for incident, first := range firings(t, pattern) {
			for alarm := range first {
				name, _, _ := strings.Cut(alarm, "/")
				if number.FindString(incident) == "" {
					continue // no incident of the list
				}
				in[name] = append(in[name], number.FindString(incident))
			}
		}
	}
	rows := alarmRow.FindAllStringSubmatch(readPage(t), -1)
	if len(rows) != len(severities) {
		t.Errorf("the page has %d alarms, the rules %d", len(rows), len(severities))
	}
	for _, row := range rows {
		name := row[1]
		if want := strings.Join(severities[name], ", "); row[2] != want {
			t.Errorf("%s is %q, want %q", name, row[2], want)
		}
		for _, m := range regexp.MustCompile(`(\d+) s\b`).FindAllStringSubmatch(row[3], -1) {
			if !regexp.MustCompile(`[<>] ` + m[1] + `\b`).MatchString(exprs[name]) {
				t.Errorf("%s has no threshold %s", name, m[0])
			}
		}
		got := strings.Fields(row[4])
		for _, incident := range in[name] {
			if !slices.Contains(got, incident) {
				t.Errorf("%s fires in incident %s, which its row %q does not have", name, incident, got)
			}
		}
		for _, incident := range got {
			if !slices.Contains(in[name], incident) {
				t.Errorf("%s does not fire in incident %s", name, incident)
			}
		}
	}
}

// The page says which alarms need a lag that somebody records.
func TestThePageSaysWhatNeedsALag(t *testing.T) {
	var need []string
	for _, r := range readRules() {
		if r.Alert != "" && regexp.MustCompile(`changefeed[_:](lag|lease_age)`).MatchString(r.Expr) {
			need = append(need, r.Alert)
		}
	}
	_, rest, _ := strings.Cut(readPage(t), "Without a lag there are no")
	sentence, _, _ := strings.Cut(rest, ";")
	got := regexp.MustCompile(`Changefeed\w+`).FindAllString(sentence, -1)
	slices.Sort(got)
	slices.Sort(need)
	if need = slices.Compact(need); !slices.Equal(got, need) {
		t.Errorf("the page says %q, the rules %q", got, need)
	}
}

// The blocks of the page are a configuration of Prometheus, rules of Alertmanager, and rules.
func TestTheBlocksOfThePageAreValid(t *testing.T) {
	tool := promtool(t)
	dir := t.TempDir()
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readPage(t), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	rules, err := os.ReadFile(deployed + "alerts/" + rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		rulesFile: string(rules), "prometheus.yml": regexp.MustCompile(`(?m)^ {3}`).ReplaceAllString(blocks[0][1], ""),
		"expected.yaml": blocks[2][1],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"check", "rules", "expected.yaml"}} {
		c := exec.CommandContext(t.Context(), tool, args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	var inhibit struct {
		Rules []struct {
			Equal []string `yaml:"equal"`
		} `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal([]byte(blocks[1][1]), &inhibit); err != nil || len(inhibit.Rules) != 1 {
		t.Errorf("%v: %+v", err, inhibit)
	}
	if !strings.Contains(blocks[2][1], "record: "+recordsOf(nil)[0]) {
		t.Errorf("no rule records %s", recordsOf(nil)[0])
	}
}

// Whoever is paged finds what to do: the handbook leads from each alarm to a section.
func TestTheHandbookHasEachAlarm(t *testing.T) {
	text, err := os.ReadFile("../../../docs/handbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Each alarm\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, r := range readRules() {
		if r.Alert != "" && !regexp.MustCompile(`(?m)^\|.*\b`+r.Alert+`\b.*\]\(#`).MatchString(table) {
			t.Errorf("the handbook has no section for %s", r.Alert)
		}
	}
}
