package alarms_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// grafana is what the tests read of a dashboard of Grafana.
type grafana struct {
	UID           string
	SchemaVersion int
	Links         []struct{ URL string }
	Templating    struct{ List []variable }
	Panels        []panel
}

// variable is a choice of the reader.
type variable struct{ Name, Type, Definition string }

// panel is a figure, or the heading of a row.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Expr       string
		Datasource struct{ UID string }
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
}

var dashboards = []string{"unit", "relay", "server"}

func readDashboard(t *testing.T, name string) (d grafana) {
	t.Helper()
	text, err := os.ReadFile(deployed + "grafana/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// plain is an expression of a panel with values in place of the variables of Grafana.
func plain(expr string) string {
	return strings.NewReplacer(
		"$__rate_interval", "1m", "$container", "shop/orders", "$unit", "mailer", "$server", "server",
	).Replace(expr)
}

// Each panel has a title, a description, a unit, an id and a place of its own, and reads the data source that the
// reader has chosen. The links lead to the other dashboards.
func TestPanelsAreComplete(t *testing.T) {
	var links, uids []string
	for _, name := range dashboards {
		d := readDashboard(t, name)
		uids = append(uids, d.UID)
		for _, link := range d.Links {
			links = append(links, strings.TrimPrefix(strings.Split(link.URL, "?")[0], "/d/"))
		}
		first := d.Templating.List[0]
		if d.SchemaVersion < 38 || first.Type != "datasource" || first.Name != "datasource" {
			t.Errorf("%s has the schema %d and first the variable %v", name, d.SchemaVersion, first)
		}
		checkPlaces(t, name, d.Panels)
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s: %q has no description, no unit or no expression", name, p.Title)
			}
			for _, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
					t.Errorf("%s: %q reads another data source", name, p.Title)
				}
			}
		}
	}
	for _, link := range links {
		if !slices.Contains(uids, link) {
			t.Errorf("there is no dashboard %s, only %q", link, uids)
		}
	}
}

// checkPlaces checks that no two panels have the same id or cover each other.
func checkPlaces(t *testing.T, name string, panels []panel) {
	t.Helper()
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("%s: panel %d %q has no id or title of its own", name, p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s: %q covers %q", name, p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// Each series, label and value that a panel or a variable reads exists in a real export.
func TestPanelsReadWhatIsExported(t *testing.T) {
	all, read := everything(t), 0
	for _, name := range dashboards {
		d := readDashboard(t, name)
		var exprs []string
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				exprs = append(exprs, target.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if series, label, ok := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ", "); ok {
				exprs = append(exprs, fmt.Sprintf("sum by (%s (%s", label, series))
			}
		}
		read += len(exprs)
		for _, expr := range exprs {
			if unknown := unknownIn(all, nil, expr); len(unknown) > 0 {
				t.Errorf("%s reads %q, which no program exports: %s", name, unknown, expr)
			}
		}
	}
	if read < 80 {
		t.Errorf("%d expressions", read)
	}
}

// record is a rule that records an expression.
type record struct {
	Record string `yaml:"record"`
	Expr   string `yaml:"expr"`
}

// Promtool can parse each expression of a panel.
func TestPanelsCanBeParsed(t *testing.T) {
	tool := promtool(t)
	var rules []record
	for _, name := range dashboards {
		for _, p := range readDashboard(t, name).Panels {
			for i, target := range p.Targets {
				rules = append(rules, record{fmt.Sprintf("panel:%s_%d:%d", name, p.ID, i), plain(target.Expr)})
			}
		}
	}
	if out, err := checkRecords(t, tool, rules); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	if out, err := checkRecords(t, tool, append(rules, record{"panel:wrong", "sum by (a (b)"})); err == nil {
		t.Errorf("promtool parses a wrong expression: %s", out)
	}
}

// checkRecords has promtool parse rules.
func checkRecords(t *testing.T, tool string, rules []record) (string, error) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput()
	return string(out), err
}
