package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const deployed = "../../deploy/"

// kinds are the types of the manifests.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                     func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":                    func() any { return new(apps.StatefulSet) },
	"v1 Service":                             func() any { return new(core.Service) },
	"v1 ServiceAccount":                      func() any { return new(core.ServiceAccount) },
	"v1 ConfigMap":                           func() any { return new(core.ConfigMap) },
	"policy/v1 PodDisruptionBudget":          func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":     func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 PodMonitor":    func() any { return new(monitoring.PodMonitor) },
	"keda.sh/v1alpha1 ScaledObject":          func() any { return new(keda.ScaledObject) },
	"keda.sh/v1alpha1 TriggerAuthentication": func() any { return new(keda.TriggerAuthentication) },
}

// decode reads a document strictly: a field that the type has not is an error.
func decode(text []byte) (kind string, read any, err error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		return "", nil, err
	}
	kind = head.APIVersion + " " + head.Kind
	make, isKnown := kinds[kind]
	if !isKnown {
		return kind, nil, fmt.Errorf("the kind %q is none of the known ones", kind)
	}
	read = make()
	return kind, read, yaml.UnmarshalStrict(text, read)
}

// documents divides a file.
func documents(text []byte) (all [][]byte) {
	for _, d := range bytes.Split(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(d)) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// Every manifest has only fields of its kind, with values of their types.
func TestManifestsHaveTheFieldsOfTheirKinds(t *testing.T) {
	files, err := filepath.Glob(deployed + "kubernetes/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(deployed + "kubernetes/components/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range append(files, more...) {
		if base := filepath.Base(file); base == "kustomization.yaml" || base == "host.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(text) {
			if _, _, err := decode(d); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			seen++
		}
	}
	if seen < 10 {
		t.Errorf("there are %d manifests, want ten at least", seen)
	}
	wrong := []byte("apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {terminationGraceSeconds: 3}}}\n")
	if _, _, err := decode(wrong); err == nil || !strings.Contains(err.Error(), "terminationGraceSeconds") {
		t.Errorf("a field that does not exist: %v, want an error that names it", err)
	}
}

// build returns what kubectl would apply.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("there is no kubectl here, which contains kustomize")
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", dir, err)
	}
	return out
}

// Each overlay, and the processor with each component, is built by kustomize into objects whose parts fit together.
func TestOverlaysAreBuilt(t *testing.T) {
	components, err := filepath.Glob(deployed + "kubernetes/components/*")
	if err != nil || len(components) < 8 {
		t.Fatalf("components %v, %v", components, err)
	}
	for _, overlay := range []string{"production", "test"} {
		t.Run(overlay, func(t *testing.T) { check(t, build(t, deployed+"kubernetes/overlays/"+overlay)) })
	}
	for _, c := range components {
		t.Run(filepath.Base(c), func(t *testing.T) {
			// kustomize takes only relative paths, so the overlay is beside the others for a moment.
			dir, err := os.MkdirTemp(deployed+"kubernetes/overlays", "tried")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../../processor]\n" +
				"components: [../../components/" + filepath.Base(c) + "]\n"
			if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			check(t, build(t, dir))
		})
	}
}

// built are the objects of an overlay.
type built struct {
	deployments map[string]*apps.Deployment
	sets        map[string]*apps.StatefulSet
	services    map[string]*core.Service
	configs     map[string]*core.ConfigMap
	accounts    map[string]*core.ServiceAccount
	budgets     []*policy.PodDisruptionBudget
	scaled      []*keda.ScaledObject
	monitors    []*monitoring.PodMonitor
}

// check decodes what kustomize has built, and follows its references.
func check(t *testing.T, text []byte) {
	t.Helper()
	b := built{
		map[string]*apps.Deployment{},
		map[string]*apps.StatefulSet{},
		map[string]*core.Service{},
		map[string]*core.ConfigMap{},
		map[string]*core.ServiceAccount{},
		nil, nil, nil,
	}
	for _, d := range documents(text) {
		_, read, err := decode(d)
		if err != nil {
			t.Fatalf("%v in\n%s", err, d)
		}
		switch o := read.(type) {
		case *apps.Deployment:
			b.deployments[o.Name] = o
		case *apps.StatefulSet:
			b.sets[o.Name] = o
		case *core.Service:
			b.services[o.Name] = o
		case *core.ConfigMap:
			b.configs[o.Name] = o
		case *core.ServiceAccount:
			b.accounts[o.Name] = o
		case *policy.PodDisruptionBudget:
			b.budgets = append(b.budgets, o)
		case *keda.ScaledObject:
			b.scaled = append(b.scaled, o)
		case *monitoring.PodMonitor:
			b.monitors = append(b.monitors, o)
		}
	}
	b.follow(t)
}

// follow checks that what is named exists.
func (b *built) follow(t *testing.T) {
	t.Helper()
	d := b.deployments["changefeed"]
	if d == nil {
		t.Fatal("there is no deployment of the processor")
	}
	pod := d.Spec.Template
	selects := func(what string, labels map[string]string) {
		for key, value := range labels {
			if pod.Labels[key] != value {
				t.Errorf("%s selects %s=%s, and the pods have %v", what, key, value, pod.Labels)
			}
		}
		if len(labels) == 0 {
			t.Errorf("%s selects everything", what)
		}
	}
	selects("the deployment", d.Spec.Selector.MatchLabels)
	for _, o := range b.budgets {
		selects("the budget", o.Spec.Selector.MatchLabels)
	}
	for _, o := range b.monitors {
		selects("the monitor", o.Spec.Selector.MatchLabels)
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		selects("the spread", spread.LabelSelector.MatchLabels)
	}
	if b.accounts[pod.Spec.ServiceAccountName] == nil {
		t.Errorf("there is no service account %q", pod.Spec.ServiceAccountName)
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil && b.configs[v.ConfigMap.Name] == nil {
			t.Errorf("there is no config map %q, only %v", v.ConfigMap.Name, b.configs)
		}
	}
	for _, o := range b.scaled {
		if o.Spec.ScaleTargetRef.Name != d.Name || d.Spec.Replicas != nil {
			t.Errorf("%s is scaled, and %s has %v replicas", o.Spec.ScaleTargetRef.Name, d.Name, d.Spec.Replicas)
		}
		if err := errors.Join(keda.CheckReplicaCountBoundsAreValid(o), keda.CheckFallbackValid(o)); err != nil {
			t.Error(err)
		}
	}
	for name, s := range b.sets {
		if b.services[s.Spec.ServiceName] == nil {
			t.Errorf("%s has no service %q", name, s.Spec.ServiceName)
		}
		for _, v := range pod.Spec.Containers[0].Env {
			if v.Name == "COSMOS_ENDPOINT" && v.Value != "http://"+s.Spec.ServiceName+":8081" {
				t.Errorf("the processor asks %s, want the service %s", v.Value, s.Spec.ServiceName)
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		checkResources(t, c.Name, c.Resources)
	}
}

// checkResources: a pod asks for no more than it may have.
func checkResources(t *testing.T, name string, r core.ResourceRequirements) {
	t.Helper()
	for what, most := range r.Limits {
		if least, isSet := r.Requests[what]; isSet && least.Cmp(most) > 0 {
			t.Errorf("%s asks for %v of %s, and may have %v", name, &least, what, &most)
		}
	}
}

// tags are the tags of the fields of a scaler's metadata.
var tags = regexp.MustCompile(`keda:"name=(\w+),\s*order=([\w;]+)([^"]*)"`)

// What the triggers of the manifests have is what KEDA 2.21.0 reads, as its sources say.
func TestTriggersHaveWhatKEDAReads(t *testing.T) {
	const module = "github.com/kedacore/keda/v2"
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	for scaler, file := range map[string]string{
		"azure_cosmosdb_scaler.go": "scale-by-leases", "prometheus_scaler.go": "scale-by-lag",
	} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg/scalers", scaler))
		if err != nil {
			t.Fatal(err)
		}
		var known, needed []string
		for _, tag := range tags.FindAllSubmatch(source, -1) {
			if !bytes.Contains(tag[2], []byte("triggerMetadata")) {
				continue
			}
			known = append(known, string(tag[1]))
			if !bytes.Contains(tag[3], []byte("optional")) && !bytes.Contains(tag[3], []byte("default")) {
				needed = append(needed, string(tag[1]))
			}
		}
		if len(needed) < 3 {
			t.Fatalf("%s needs %v: want what was found when this test was written", scaler, needed)
		}
		text, err := os.ReadFile(deployed + "kubernetes/components/" + file + "/scaled-object.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(text) {
			kind, read, err := decode(d)
			if err != nil {
				t.Fatal(err)
			}
			if o, isScaled := read.(*keda.ScaledObject); isScaled {
				compare(t, kind, o.Spec.Triggers[0].Metadata, known, needed)
			}
		}
	}
}

func compare(t *testing.T, what string, has map[string]string, known, needed []string) {
	t.Helper()
	for key := range has {
		if !slices.Contains(known, key) {
			t.Errorf("%s has %s, and KEDA reads %v", what, key, known)
		}
	}
	for _, key := range needed {
		if has[key] == "" {
			t.Errorf("%s lacks %s", what, key)
		}
	}
	if _, err := json.Marshal(has); err != nil {
		t.Error(err)
	}
}
