package main

import "testing"

// A container whose name is lost is named by what stands for its name, which is no name elsewhere.
func TestAContainerWhoseNameIsLostCanBeNamed(t *testing.T) {
	var o exportOptions
	o.db, o.container = "d", "container 3"
	if dir, name, err := o.wreck(exportCommand(), nil); dir != "d" || name != "container 3" || err != nil {
		t.Errorf("named %q, %q, %v", dir, name, err)
	}
}
