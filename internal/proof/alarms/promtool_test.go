package alarms_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	deployed  = "../../../deploy/"
	rulesFile = "changefeed.rules.yaml"
)

// promtool returns the path of promtool, or skips the test.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool here: apt-get install prometheus, or a release of github.com/prometheus/prometheus")
	}
	return path
}

// expression lists the alarms that fire.
const expression = `group by (alertname, severity) (ALERTS{alertstate="firing"})`

// timeline says which alarms fire at each evaluation, as ChangefeedOutage/page. It lets promtool expect the impossible,
// because promtool shows what it has got only then.
func (p *tape) timeline(t *testing.T, tool string) (all [][]string) {
	t.Helper()
	rules, err := filepath.Abs(deployed + "alerts/" + rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var checks strings.Builder
	for i := range p.now {
		checks.WriteString(check(i, []string{"impossible/impossible"}))
	}
	file := filepath.Join(t.TempDir(), "timeline.yaml")
	if err := os.WriteFile(file, []byte(p.file("timeline", rules, "", checks.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), tool, "test", "rules", file).CombinedOutput()
	if _, isExit := errors.AsType[*exec.ExitError](err); !isExit {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	all = make([][]string, p.now)
	seen := 0
	for _, part := range strings.Split(string(out), "expr: ")[1:] {
		m := timePattern.FindStringSubmatch(part)
		if m == nil {
			t.Fatalf("promtool says %s", part)
		}
		at, err := time.ParseDuration(m[1])
		if err != nil {
			t.Fatal(err)
		}
		var fires []string
		_, got, _ := strings.Cut(part, "got:")
		for _, series := range alarmPattern.FindAllStringSubmatch(got, -1) {
			fires = append(fires, series[1]+"/"+series[2])
		}
		slices.Sort(fires)
		all[at/interval] = fires
		seen++
	}
	if seen < p.now {
		t.Fatalf("promtool shows %d of %d times:\n%s", seen, p.now, out)
	}
	return all
}

var (
	timePattern  = regexp.MustCompile(`time: (\w+)`)
	alarmPattern = regexp.MustCompile(`alertname="(\w+)", severity="(\w+)"`)
)

// check is a check of promtool: which alarms fire at an evaluation.
func check(at int, fires []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "      - expr: %s\n        eval_time: %v\n", expression, time.Duration(at)*interval)
	if len(fires) == 0 {
		b.WriteString("        exp_samples: []\n")
		return b.String()
	}
	b.WriteString("        exp_samples:\n")
	for _, name := range fires {
		alarm, severity, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "          - {labels: '{alertname=%q, severity=%q}', value: 1}\n", alarm, severity)
	}
	return b.String()
}

// file returns a file of tests for promtool with the series that the rules read.
func (p *tape) file(name, rules, comment, checks string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%srule_files: [%s]\nevaluation_interval: %v\n\n", comment, rules, interval)
	fmt.Fprintf(&b, "tests:\n  - name: %s\n    interval: %v\n", name, interval)
	b.WriteString("    input_series:\n")
	var all []string
	for series := range p.values {
		if metric, _, _ := strings.Cut(series, "{"); slices.Contains(namesIn(readRules()), metric) {
			all = append(all, series)
		}
	}
	slices.Sort(all)
	for _, series := range all {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", series, p.notation(series))
	}
	return b.String() + "    promql_expr_test:\n" + checks
}

// changes are the checks at which another set of alarms begins to fire, each after a check of the time before.
func changes(timeline [][]string) string {
	var b strings.Builder
	last := -1
	for i, fires := range timeline {
		if i > 0 && slices.Equal(fires, timeline[i-1]) && i < len(timeline)-1 {
			continue
		}
		if i > 0 && last < i-1 {
			b.WriteString(check(i-1, timeline[i-1]))
		}
		b.WriteString(check(i, fires))
		last = i
	}
	return b.String()
}

// The recorded incidents beside the rules say what fires, and what does not.
func TestRecordedIncidents(t *testing.T) {
	tool := promtool(t)
	files, err := filepath.Glob(deployed + "alerts/*_test.yaml")
	if err != nil || len(files) < len(incidents)+1 {
		t.Fatalf("%d recorded files, %v; want one for each of %d incidents, and one of the server", len(files), err,
			len(incidents))
	}
	for _, args := range [][]string{
		{"check", "rules", deployed + "alerts/" + rulesFile}, append([]string{"test", "rules"}, files...),
	} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, out)
		}
	}
}

// Each alarm fires in a recorded file, in each of its severities.
func TestEachAlarmHasARecording(t *testing.T) {
	recorded, err := globbed(os.DirFS(deployed), "alerts/*_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readRules() {
		line := regexp.MustCompile(fmt.Sprintf(`alertname=%q.*severity=%q`, r.Alert, r.Labels["severity"]))
		if r.Alert != "" && !line.MatchString(recorded) {
			t.Errorf("no recording has %s", line)
		}
	}
}
