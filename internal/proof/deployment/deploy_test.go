// Package deployment checks the files of deploy against each other, and against what the command does.
package deployment_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Types of conformance/deploy know every field of the manifests. These here have what is compared.
type (
	manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Template        template
			Triggers        []trigger
			MinReplicaCount *int `yaml:"minReplicaCount"`
			MaxReplicaCount *int `yaml:"maxReplicaCount"`
			Selector        struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Endpoints []struct{ Port, Path string } `yaml:"podMetricsEndpoints"`
		}
	}
	template struct {
		Metadata struct{ Labels map[string]string }
		Spec     pod
	}
	pod struct {
		Grace           int `yaml:"terminationGracePeriodSeconds"`
		SecurityContext struct {
			RunAsNonRoot bool `yaml:"runAsNonRoot"`
			RunAsUser    int  `yaml:"runAsUser"`
		} `yaml:"securityContext"`
		Containers []container
	}
	container struct {
		Name  string
		Args  []string
		Ports []struct {
			Name string
			Port string `yaml:"containerPort"`
		}
		Env             []variable
		StartupProbe    *probe `yaml:"startupProbe"`
		ReadinessProbe  *probe `yaml:"readinessProbe"`
		LivenessProbe   *probe `yaml:"livenessProbe"`
		Resources       struct{ Requests, Limits map[string]string }
		SecurityContext struct {
			Escalation *bool                   `yaml:"allowPrivilegeEscalation"`
			ReadOnly   bool                    `yaml:"readOnlyRootFilesystem"`
			Drop       struct{ Drop []string } `yaml:"capabilities"`
		} `yaml:"securityContext"`
	}
	variable struct{ Name, Value string }
	probe    struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
		Period  int                         `yaml:"periodSeconds"`
		Most    int                         `yaml:"failureThreshold"`
	}
	trigger struct {
		Type       string
		MetricType string `yaml:"metricType"`
		Metadata   map[string]string
	}
)

// read returns a file below the directory deploy.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../../deploy/" + name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// manifests returns the documents of a file.
func manifests(t *testing.T, name string) (all []manifest) {
	t.Helper()
	documents := yaml.NewDecoder(strings.NewReader(read(t, name)))
	for {
		var m manifest
		switch err := documents.Decode(&m); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, m)
	}
}

// the returns the manifest of a kind in a file.
func the(t *testing.T, kind, name string) *manifest {
	t.Helper()
	for _, m := range manifests(t, name) {
		if m.Kind == kind {
			return &m
		}
	}
	t.Fatalf("%s has no %s", name, kind)
	return nil
}

const (
	processorFile = "kubernetes/processor/deployment.yaml"
	hostFile      = "kubernetes/processor/host.yaml"
	serveFile     = "kubernetes/serve/stateful-set.yaml"
	appsFile      = "container-apps/changefeed.yaml"
	unitFile      = "systemd/changefeed@.service"
	dockerFile    = "Dockerfile"
	lagFile       = "kubernetes/components/scale-by-lag/scaled-object.yaml"
	leasesFile    = "kubernetes/components/scale-by-leases/scaled-object.yaml"
	externalFile  = "kubernetes/components/scale-by-external-scaler/scaled-object.yaml"
	monitorFile   = "kubernetes/components/pod-monitor/pod-monitor.yaml"
)

// pods returns the pods of all platforms, by the file that describes them.
func pods(t *testing.T) map[string]pod {
	t.Helper()
	all := map[string]pod{
		processorFile: the(t, "Deployment", processorFile).Spec.Template.Spec,
		serveFile:     the(t, "StatefulSet", serveFile).Spec.Template.Spec,
	}
	app := containerApp(t)
	of := pod{Grace: app.Properties.Template.Grace}
	for _, c := range app.Properties.Template.Containers {
		of.Containers = append(of.Containers, c.container)
	}
	all[appsFile] = of
	return all
}

// flagOf returns the value of a flag in arguments.
func flagOf(args []string, name string) string {
	for i, arg := range args {
		if arg == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// settings are the values of a setting of the unit of systemd, which may be there several times.
func settings(t *testing.T, name string) (values []string) {
	t.Helper()
	for line := range strings.Lines(read(t, unitFile)) {
		if key, value, isSetting := strings.Cut(strings.TrimSpace(line), "="); isSetting && key == name {
			values = append(values, value)
		}
	}
	return values
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A manifest that created leases would let a unit whose leases are gone begin again from its start (docs/deployment.md,
// "Restarts and lost leases").
func TestNoManifestCreatesLeases(t *testing.T) {
	files := 0
	top := filepath.FromSlash("../../../deploy")
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for n, line := range strings.Split(string(text), "\n") {
			setting, _, _ := strings.Cut(line, "#")
			if strings.Contains(strings.ToLower(setting), "create-leases") {
				t.Errorf("%s:%d: %s: want no create-leases", path, n+1, line)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files read: %v", files, err)
	}
}
