package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/appcontainers/armappcontainers/v3"
	"sigs.k8s.io/yaml"
)

// readApp decodes a container app into Microsoft's type, which is generated from the published schema of the service.
// The type leaves unknown members out, so they are what is lost when it is written again.
func readApp(text []byte) (app apps.ContainerApp, lost []string, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return app, nil, err
	}
	if err := app.UnmarshalJSON(asJSON); err != nil {
		return app, nil, err
	}
	again, err := app.MarshalJSON()
	if err != nil {
		return app, nil, err
	}
	var given, kept any
	if err := json.Unmarshal(asJSON, &given); err != nil {
		return app, nil, err
	}
	if err := json.Unmarshal(again, &kept); err != nil {
		return app, nil, err
	}
	return app, missingIn(given, kept, ""), nil
}

// missingIn returns the places of values that the second one lacks, or has otherwise.
func missingIn(given, kept any, at string) (places []string) {
	switch g := given.(type) {
	case map[string]any:
		k, _ := kept.(map[string]any)
		for name, value := range g {
			other, ok := k[name]
			if !ok {
				places = append(places, at+"."+name)
				continue
			}
			places = append(places, missingIn(value, other, at+"."+name)...)
		}
	case []any:
		k, _ := kept.([]any)
		if len(k) != len(g) {
			return []string{at}
		}
		for i := range g {
			places = append(places, missingIn(g[i], k[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		if !reflect.DeepEqual(given, kept) {
			places = append(places, at)
		}
	}
	return places
}

// The container app has only members of Microsoft's type, with values of their types, and words that the type knows.
func TestTheContainerAppHasTheMembersOfMicrosoftsType(t *testing.T) {
	text, err := os.ReadFile(deployed + "container-apps/changefeed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	app, lost, err := readApp(text)
	if err != nil || len(lost) > 0 {
		t.Fatalf("unknown members: %q, %v", lost, err)
	}
	mode, kind := *app.Properties.Configuration.ActiveRevisionsMode, *app.Identity.Type
	if !slices.Contains(apps.PossibleActiveRevisionsModeValues(), mode) ||
		!slices.Contains(apps.PossibleManagedServiceIdentityTypeValues(), kind) {
		t.Errorf("activeRevisionsMode %q or type of identity %q is unknown", mode, kind)
	}
	for _, p := range app.Properties.Template.Containers[0].Probes {
		if !slices.Contains(apps.PossibleTypeValues(), *p.Type) {
			t.Errorf("the type %q of a probe is unknown", *p.Type)
		}
	}
	for _, v := range app.Properties.Template.Volumes {
		if !slices.Contains(apps.PossibleStorageTypeValues(), *v.StorageType) {
			t.Errorf("the storage type %q of a volume is unknown", *v.StorageType)
		}
	}
	for old, wrong := range map[string]string{
		"maxReplicas: 20": "maximumReplicas: 20",
		"keyVaultUrl":     "keyVaultAddress",
		"minReplicas: 1":  "minReplicas: one",
	} {
		changed := strings.Replace(string(text), old, wrong, 1)
		if _, lost, err := readApp([]byte(changed)); changed == string(text) || len(lost) == 0 && err == nil {
			t.Errorf("%s is accepted, want an unknown member or a wrong type", wrong)
		}
	}
}
