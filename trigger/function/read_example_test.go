package function_test

import (
	"fmt"

	"github.com/millrace/changefeed/trigger/function"
)

// The settings that local.settings.json has on a developer's machine come from the environment elsewhere.
func ExampleReadApp() {
	app, err := function.ReadApp("testdata/orders", function.ReadOptions{Environ: []string{"Database=shop"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range app.Functions {
		t := f.Trigger
		fmt.Printf("%s reads %s/%s of %v\n", f.Name, t.Database, t.Container, t.Connection)
	}
	// Output:
	// Copies reads shop/orders of http://127.0.0.1:8081/ of setting ShopAccount
	// Seen reads shop/orders of http://127.0.0.1:8081/ of setting ShopAccount
}
