package contracttest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/changefeed/trigger/contract/contracttest"
)

// The test binary itself is the program here. Usually the command is that of another language, such as node steered.js.
func ExampleTest() {
	os.Setenv("CONTRACTTEST_PROGRAM", "good")
	defer os.Unsetenv("CONTRACTTEST_PROGRAM")
	options := contracttest.Options{Only: []string{"handles a batch of one change"}}
	report := func(r contracttest.Result) { fmt.Println(r) }
	failed, err := contracttest.Test(context.Background(), []string{os.Args[0]}, options, report)
	fmt.Println(failed, err)
	// Output:
	// ok   handles a batch of one change
	// 0 <nil>
}
