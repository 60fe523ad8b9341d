package changefeed

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Whoever comes from .NET finds what each option here replaces, also an option that is new.
func TestTheGuideFromDotNetNamesEachOption(t *testing.T) {
	page, err := os.ReadFile("docs/from-dotnet.md")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[Options]().Fields() {
		if !strings.Contains(string(page), "`Options."+field.Name) && !strings.Contains(string(page), "`"+field.Name) {
			t.Errorf("docs/from-dotnet.md does not name Options.%s", field.Name)
		}
	}
}
