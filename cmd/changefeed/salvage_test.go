package main

import (
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// TestAContainerWhoseNameIsLostCanBeNamed by what stands for its name, and an error says so.
func TestAContainerWhoseNameIsLostCanBeNamed(t *testing.T) {
	var found docstore.Salvaged
	for _, name := range []string{"orders", "container 3"} {
		found.Containers = append(found.Containers, docstore.SalvagedContainer{Name: name})
	}
	err := incomplete(&found, "customers", 0)
	if err == nil || !strings.HasSuffix(err.Error(), "want one of orders, container 3, as in --container 'container 3', which stands for one whose name is lost") {
		t.Errorf("got %v", err)
	}
	var o exportOptions
	o.db, o.container = "d", "container 3"
	_, name, err := o.wreck(exportCommand(), nil)
	if err != nil || name != found.Containers[1].Name {
		t.Errorf("named %q, %v", name, err)
	}
	if err := incomplete(&found, name, 0); err != nil {
		t.Error(err)
	}
}
