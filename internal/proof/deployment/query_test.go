package deployment_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The query of the lag says how many pods are wanted. Prometheus itself evaluates it.
func TestTheQueryOfTheLagSaysHowManyPodsAreWanted(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool here: apt-get install prometheus")
	}
	query := the(t, "ScaledObject", lagFile).Spec.Triggers[0].Metadata["query"]
	const labels = `{messaging_consumer_group_name="mailer",messaging_destination_name="shop/orders",pod="%s"}`
	type series map[string]string
	var tests []map[string]any
	for _, tt := range []struct {
		what           string
		instances, lag string // of two pods that say the same
		leases         int
		want           []float64
	}{
		{"behind four times the target", "2", "120", 20, []float64{8}},
		{"a little behind", "3", "31", 20, []float64{4}},
		{"within the target", "4", "12", 20, []float64{2}},
		{"up to date", "4", "0", 20, []float64{0}}, // the least number of pods counts
		{"no more pods than leases", "4", "600", 10, []float64{10}},
		{"unknown is not 0", "4", "_", 10, nil},
	} {
		var input []series
		for _, pod := range []string{"a", "b"} {
			of := fmt.Sprintf(labels, pod)
			input = append(input, series{"series": "changefeed_unit_instances" + of, "values": tt.instances},
				series{"series": "changefeed_lag_age_seconds" + of, "values": tt.lag},
				series{"series": "changefeed_unit_leases" + of, "values": itoa(tt.leases)})
		}
		want := []map[string]any{}
		for _, v := range tt.want {
			want = append(want, map[string]any{"labels": "{}", "value": v})
		}
		tests = append(tests, map[string]any{
			"name": tt.what, "interval": "15s", "input_series": input,
			"promql_expr_test": []map[string]any{{"expr": query, "eval_time": "0s", "exp_samples": want}},
		})
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "15s", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "query.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	if err != nil || !strings.Contains(string(said), "SUCCESS") {
		t.Errorf("promtool: %v\n%s", err, said)
	}
}
