package changefeedtest

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// The words of a report.

// report describes a failed run.
func (p *prober) report(how string, out outcome) string {
	var b strings.Builder
	what := string(out.problem)
	if out.problem == effectsDiffer && len(out.faults) == 0 {
		what = "its effects depend on how the changes are divided into batches, or on the order of different keys"
	}
	fmt.Fprintf(&b, "the handler fails the torture %s: %s\n", how, what)
	for i, sentence := range out.story {
		if left := len(out.story) - mostSentences; left > 0 && i < left {
			continue // the end explains more than the beginning
		}
		fmt.Fprintf(&b, "  %d. %s\n", i+1, sentence)
	}
	for _, line := range out.detail {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Limits of a report.
const (
	mostSentences   = 60
	mostDifferences = 10
)

// contents names the changes of a batch: consecutive ones of a key together.
func (c *tortureCall) contents() string {
	var parts []string
	for i, change := range c.batch.Changes {
		if i > 0 && c.batch.Changes[i-1].PartitionKey == change.PartitionKey {
			parts[len(parts)-1] += fmt.Sprintf(" and %s at LSN %d", change.ID, change.LSN)
			continue
		}
		parts = append(parts, fmt.Sprintf("key %s: %s at LSN %d", change.PartitionKey, change.ID, change.LSN))
	}
	return fmt.Sprintf("%s (%s)", counted(len(c.batch.Changes), "change"), strings.Join(parts, ", "))
}

// first names the first change of the batch.
func (c *tortureCall) first() string {
	if c.batch == nil {
		return "Close of lease " + c.lease.r.String()
	}
	return fmt.Sprintf("change %s of key %s", c.batch.Changes[0].ID, c.batch.Changes[0].PartitionKey)
}

// result says what the handler has returned.
func (c *tortureCall) result() string {
	if !c.isBack {
		return "the handler has not returned"
	}
	if c.err != nil {
		return fmt.Sprintf("the handler returns the error %q", c.err)
	}
	return "the handler returns nil"
}

// ending says when the context of the call has ended, and why.
func (c *tortureCall) ending() string {
	cause := c.cause()
	if cause == nil {
		cause = c.fault.endsContext() // just after the handler has returned
		return fmt.Sprintf("the context on %s ends when the handler has returned (%v)", c.host.name, cause)
	}
	return fmt.Sprintf("the context on %s ends during the call (%v)", c.host.name, cause)
}

// difference lists what differs between the effects of a clean run and others, of a map by its keys.
func difference(clean, got any) (lines []string) {
	a, b := reflect.ValueOf(clean), reflect.ValueOf(got)
	if !a.IsValid() || !b.IsValid() || a.Kind() != reflect.Map || b.Kind() != reflect.Map {
		return []string{
			fmt.Sprintf("Effects of a clean run: %+v", clean),
			fmt.Sprintf("Effects here:           %+v", got),
		}
	}
	keys := map[string]reflect.Value{}
	for _, key := range slices.Concat(a.MapKeys(), b.MapKeys()) {
		keys[fmt.Sprintf("%v", key)] = key
	}
	for _, name := range sortedNames(keys) {
		was, is := a.MapIndex(keys[name]), b.MapIndex(keys[name])
		if was.IsValid() && is.IsValid() && reflect.DeepEqual(was.Interface(), is.Interface()) {
			continue
		}
		lines = append(lines, fmt.Sprintf("The effect %s is %s, and %s in a clean run.", name, textOf(is), textOf(was)))
	}
	if left := len(lines) - mostDifferences; left > 0 {
		lines = append(lines[:mostDifferences], fmt.Sprintf("%s more differ.", counted(left, "effect")))
	}
	return lines
}

func sortedNames(keys map[string]reflect.Value) (names []string) {
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// textOf is an element of a map in words.
func textOf(v reflect.Value) string {
	if !v.IsValid() {
		return "missing"
	}
	return fmt.Sprintf("%+v", v.Interface())
}

// Goroutines are known by their stacks only. A stack begins with the name of its goroutine and its bubble, and ends
// with the place where it was started, and by which goroutine.

// ownStack returns the stack of the caller's goroutine.
func ownStack() string {
	buf := make([]byte, 512)
	return string(buf[:runtime.Stack(buf, false)])
}

// nameOf returns the name of a stack's goroutine.
func nameOf(stack string) string {
	name, _, _ := strings.Cut(stack, " [")
	return name
}

// bubbleOf returns the bubble of a stack's goroutine.
func bubbleOf(stack string) string {
	line, _, _ := strings.Cut(stack, "\n")
	_, name, _ := strings.Cut(line, "synctest bubble ")
	name, _, _ = strings.Cut(name, "]")
	name, _, _ = strings.Cut(name, ",")
	return name
}

// stacksOf returns the stacks of a bubble.
func stacksOf(bubble string) []string {
	buf := make([]byte, 1<<16)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) {
		buf = make([]byte, 2*len(buf))
	}
	return slices.DeleteFunc(strings.Split(string(buf[:n]), "\n\n"), func(stack string) bool {
		return bubbleOf(stack) != bubble
	})
}

// checkLeftovers fails the run if a goroutine is left that one of the calls has started.
func (r *tortureRun) checkLeftovers(calls []*tortureCall) {
	stacks := stacksOf(r.bubble)
	for _, c := range calls {
		for _, stack := range stacks {
			if c.isBack && strings.Contains(stack, " in "+c.name+"\n") {
				r.fail(leavesBehind, append([]string{
					fmt.Sprintf("After the call for %s, a goroutine is left that the call has started:", c.first()),
				}, originOf(stack)...)...)
				return
			}
		}
	}
}

// findLeftovers explains why a bubble could not end.
func (r *tortureRun) findLeftovers(dead string) {
	lines := []string{"After the run, goroutines are left that nothing can wake (" + dead + "):"}
	for _, stack := range stacksOf(r.bubble) {
		if strings.Contains(stack, "created by ") && !strings.Contains(stack, "created by testing") {
			lines = append(lines, originOf(stack)...)
		}
	}
	r.fail(leavesBehind, lines...)
}

// originOf returns the lines of a stack that say what its goroutine does, and where it was started.
func originOf(stack string) (lines []string) {
	all := strings.Split(stack, "\n")
	for i, line := range all[:len(all)-1] {
		isOurs := strings.Contains(line, "changefeedtest.(*tortureRun)")
		if (i == 1 || strings.HasPrefix(line, "created by ")) && !isOurs {
			place, _, _ := strings.Cut(strings.TrimSpace(all[i+1]), " +0x")
			lines = append(lines, "  "+line, "    "+place)
		}
	}
	return lines
}
