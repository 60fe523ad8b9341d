package deployment_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// app is a container app, as far as it is compared. Container Apps has no schema that can be had here without an
// account, so unknown fields are refused: whoever adds one must add it here, from the reference of Microsoft.App.
type app struct {
	Type, Location string
	Identity       struct {
		Type       string
		Identities map[string]struct{} `yaml:"userAssignedIdentities"`
	}
	Properties struct {
		EnvironmentID string `yaml:"environmentId"`
		Configuration struct {
			Mode    string `yaml:"activeRevisionsMode"`
			Secrets []struct {
				Name     string
				URL      string `yaml:"keyVaultUrl"`
				Identity string
			}
			Registries []struct{ Server, Identity string }
		}
		Template struct {
			Grace      int `yaml:"terminationGracePeriodSeconds"`
			Containers []appContainer
			Volumes    []struct {
				Name        string
				StorageType string `yaml:"storageType"`
				Secrets     []struct {
					SecretRef string `yaml:"secretRef"`
					Path      string
				}
			}
			Scale struct {
				Min   int `yaml:"minReplicas"`
				Max   int `yaml:"maxReplicas"`
				Rules []struct {
					Name   string
					Custom struct {
						Type     string
						Metadata map[string]string
						Identity string
					}
				}
			}
		}
	}
}

type appContainer struct {
	container `yaml:"-"`

	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		SecretRef   string `yaml:"secretRef"`
	}
	Probes []struct {
		Type    string
		HTTPGet struct {
			Path string
			Port int
		} `yaml:"httpGet"`
		Period  int `yaml:"periodSeconds"`
		Timeout int `yaml:"timeoutSeconds"`
		Most    int `yaml:"failureThreshold"`
	}
	Resources struct {
		CPU    float64
		Memory string
	}
	Mounts []struct {
		Volume string `yaml:"volumeName"`
		Path   string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// containerApp reads the container app strictly.
func containerApp(t *testing.T) *app {
	t.Helper()
	var a app
	d := yaml.NewDecoder(strings.NewReader(read(t, appsFile)))
	d.KnownFields(true)
	if err := d.Decode(&a); err != nil {
		t.Fatalf("%s: %v", appsFile, err)
	}
	for i := range a.Properties.Template.Containers {
		c := &a.Properties.Template.Containers[i]
		c.container = container{Name: c.Name, Args: c.Args}
		for _, v := range c.Env {
			c.container.Env = append(c.container.Env, variable{v.Name, v.Value})
		}
		for _, p := range c.Probes {
			asks := &probe{Period: p.Period, Most: p.Most}
			asks.HTTPGet.Path, asks.HTTPGet.Port = p.HTTPGet.Path, itoa(p.HTTPGet.Port)
			switch p.Type {
			case "Startup":
				c.StartupProbe = asks
			case "Readiness":
				c.ReadinessProbe = asks
			case "Liveness":
				c.LivenessProbe = asks
			default:
				t.Errorf("%s: a probe of type %q", appsFile, p.Type)
			}
		}
	}
	return &a
}

// What a container app names exists in it, and its numbers are within the limits of Container Apps.
func TestTheContainerAppIsWhole(t *testing.T) {
	a := containerApp(t)
	ids := slices.Collect(maps.Keys(a.Identity.Identities))
	has := func(what, id string) {
		if !slices.Contains(ids, id) {
			t.Errorf("%s has the identity %s, which the app has not", what, id)
		}
	}
	var secrets []string
	for _, s := range a.Properties.Configuration.Secrets {
		has(s.Name, s.Identity)
		secrets = append(secrets, s.Name)
	}
	for _, r := range a.Properties.Configuration.Registries {
		has(r.Server, r.Identity)
	}
	for _, r := range a.Properties.Template.Scale.Rules {
		has(r.Name, r.Custom.Identity)
		checkMetadata(t, appsFile, trigger{Type: r.Custom.Type, Metadata: r.Custom.Metadata})
	}
	paths := map[string]string{}
	for _, v := range a.Properties.Template.Volumes {
		for _, s := range v.Secrets {
			if !slices.Contains(secrets, s.SecretRef) {
				t.Errorf("the volume %s has the secret %s, which the app has not", v.Name, s.SecretRef)
			}
			paths[v.Name] = s.Path
		}
	}
	for _, c := range a.Properties.Template.Containers {
		for _, v := range c.Env {
			if v.SecretRef != "" && !slices.Contains(secrets, v.SecretRef) {
				t.Errorf("%s has the secret %s, which the app has not", v.Name, v.SecretRef)
			}
		}
		for _, m := range c.Mounts {
			if file := m.Path + "/" + paths[m.Volume]; !slices.Contains(c.Args, file) {
				t.Errorf("%s is mounted, and %v do not name it", file, c.Args)
			}
		}
		for _, p := range c.Probes { // the limits of learn.microsoft.com, ContainerAppProbe
			if p.Most < 1 || p.Most > 10 || p.Period < 1 || p.Period > 240 || p.Timeout < 1 || p.Timeout > 240 {
				t.Errorf("the probe %s is beyond the limits of Container Apps: %+v", p.Type, p)
			}
		}
		if c.Resources.Memory != "0.5Gi" || c.Resources.CPU != 0.25 { // the service takes 2 GiB for each core
			t.Errorf("%g cores and %s: want a pair that Container Apps offers", c.Resources.CPU, c.Resources.Memory)
		}
	}
	if grace := a.Properties.Template.Grace; grace > 600 {
		t.Errorf("%d s to end, want 600 at most", grace)
	}
	if a.Type != "Microsoft.App/containerApps" || !regexp.MustCompile(`^[A-Z]+$`).MatchString(a.Location) {
		t.Errorf("type %q in %q, want a container app, and a place to be filled in", a.Type, a.Location)
	}
}
