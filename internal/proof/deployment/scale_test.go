package deployment_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// What each trigger of KEDA reads. conformance/deploy compares the first two with the sources of KEDA 2.21.0. The
// third one is from ScalerMetadata.cs of kedacore/external-scaler-azure-cosmos-db, with KEDA's own scalerAddress.
var triggerKeys = map[string]struct{ needed, known []string }{
	"azure-cosmosdb": {
		needed: []string{"databaseId", "containerId", "leaseDatabaseId", "leaseContainerId", "processorName"},
		known: []string{
			"endpoint", "connection", "connectionFromEnv", "leaseEndpoint", "leaseConnection", "leaseConnectionFromEnv",
			"changeFeedLagThreshold", "activationChangeFeedLagThreshold",
		},
	},
	"prometheus": {
		needed: []string{"serverAddress", "query", "threshold"},
		known:  []string{"activationThreshold", "ignoreNullValues", "namespace", "timeout", "unsafeSsl"},
	},
	"external": {
		needed: []string{
			"scalerAddress", "databaseId", "containerId", "leaseDatabaseId", "leaseContainerId", "processorName",
		},
		known: []string{
			"connection", "connectionFromEnv", "leaseConnection", "leaseConnectionFromEnv", "endpoint", "leaseEndpoint",
			"clientId", "metricName",
		},
	},
}

// checkMetadata checks that a trigger has the keys that its scaler reads, and no others.
func checkMetadata(t *testing.T, file string, tr trigger) {
	t.Helper()
	keys, isKnown := triggerKeys[tr.Type]
	if !isKnown {
		t.Errorf("%s has a trigger %q", file, tr.Type)
	}
	for _, key := range keys.needed {
		if tr.Metadata[key] == "" {
			t.Errorf("%s: the trigger %s lacks %s", file, tr.Type, key)
		}
	}
	for key := range tr.Metadata {
		if !slices.Contains(keys.needed, key) && !slices.Contains(keys.known, key) {
			t.Errorf("%s: the trigger %s does not read %s", file, tr.Type, key)
		}
	}
	if tr.Type != "prometheus" {
		names := tr.Metadata["databaseId"] + "/" + tr.Metadata["containerId"] + " " + tr.Metadata["processorName"]
		if want := "shop/orders mailer"; names != want {
			t.Errorf("%s scales %s, want %s as in %s", file, names, want, hostFile)
		}
		if tr.Metadata["endpoint"] == "" && tr.Metadata["connectionFromEnv"] == "" {
			t.Errorf("%s: the trigger %s has no account", file, tr.Type)
		}
	}
}

func TestScalersGetWhatTheyRead(t *testing.T) {
	for file, kind := range map[string]string{
		lagFile: "prometheus", leasesFile: "azure-cosmosdb", externalFile: "external",
	} {
		m := the(t, "ScaledObject", file)
		if len(m.Spec.Triggers) != 1 || m.Spec.Triggers[0].Type != kind {
			t.Fatalf("%s has the triggers %+v, want one of %s", file, m.Spec.Triggers, kind)
		}
		checkMetadata(t, file, m.Spec.Triggers[0])
		// Nobody measures the lag in Prometheus if there is no pod. Leases show it without a pod.
		if least := m.Spec.MinReplicaCount; least == nil || (*least == 0) == (kind == "prometheus") {
			t.Errorf("%s: the least number of pods is %v", file, least)
		}
		if m.Spec.MaxReplicaCount == nil {
			t.Errorf("%s has no greatest number of pods", file)
		}
	}
	host := read(t, hostFile)
	for _, want := range []string{"source: cosmos:shop/orders", "name: mailer"} {
		if !strings.Contains(host, want) {
			t.Errorf("%s lacks %q", hostFile, want)
		}
	}
}

// exported are the gauges that package metrics has, by the names that Prometheus sees.
func exported(t *testing.T) (all []string) {
	t.Helper()
	suffixes := map[string]string{"s": "_seconds", "1": "_ratio"}
	for line := range strings.Lines(read(t, "../metrics/testdata/run.txt")) {
		name, rest, _ := strings.Cut(line, " ")
		unit, _, _ := strings.Cut(rest, " ")
		all = append(all, strings.ReplaceAll(name, ".", "_")+suffixes[unit])
	}
	return all
}

// The query of the lag names metrics that exist, of the unit and the container of the host's file.
func TestTheQueryOfTheLagNamesMetricsThatExist(t *testing.T) {
	query := the(t, "ScaledObject", lagFile).Spec.Triggers[0].Metadata["query"]
	names := regexp.MustCompile(`(changefeed_\w+)\{([^}]*)\}`).FindAllStringSubmatch(query, -1)
	if len(names) != 3 || strings.Count(query, "changefeed_") != 3 {
		t.Fatalf("the query names %v, want three metrics with labels", names)
	}
	known := exported(t)
	const labels = `messaging_consumer_group_name="mailer",messaging_destination_name="shop/orders"`
	for _, n := range names {
		if !slices.Contains(known, n[1]) {
			t.Errorf("the query names %s, which package metrics does not export", n[1])
		}
		if n[2] != labels {
			t.Errorf("the query selects %s, want %s", n[2], labels)
		}
	}
	if !strings.Contains(query, "scalar(max(changefeed_unit_leases{"+labels+"}))") ||
		!strings.HasPrefix(query, "clamp_max(") {
		t.Errorf("the query does not bound the pods by the leases: %s", query)
	}
}
