package changefeed

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A lease is renewed before it is trusted no longer.
func TestARenewalComesBeforeTheTrustEnds(t *testing.T) {
	for renew, ok := range map[time.Duration]bool{54*time.Second - 1: true, 54 * time.Second: false, time.Minute: false} {
		o := Options{Instance: "a", Renew: renew, Expiration: time.Minute}.withDefaults()
		if err := o.validate(); (err == nil) != ok {
			t.Errorf("Renew %v with an Expiration of a minute: %v", renew, err)
		}
	}
}

// The oldest of several backlogs is that of the lease.
func TestALagIsAsOldAsItsOldestPart(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	var l Lag
	for _, b := range []feed.Backlog{{}, {Items: 2, Oldest: at(20)}, {}, {Items: 3, Oldest: at(10)}, {Items: 1, Oldest: at(30)}} {
		l.addBacklog(b)
	}
	if l.Pending != 6 || !l.Oldest.Equal(at(10)) || l.Age(at(15)) != 5*time.Second || l.Age(at(5)) != 0 {
		t.Errorf("%d pending since %v", l.Pending, l.Oldest)
	}
}

// The parts of the processor have all options, each under its name.
func TestThePartsHaveAllOptions(t *testing.T) {
	o := Options{Start: feed.FromBeginning(), Filter: func(*feed.Change) bool { return true }, OnFailure: FailurePolicy{DeadLetters: unused{}}}
	given := map[string]reflect.Value{}
	fill := func(fields reflect.Value) {
		for i := range fields.NumField() {
			f := fields.Field(i)
			switch f.Kind() {
			case reflect.String:
				f.SetString("a")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(len(given) + 1)) // of each field another one
			case reflect.Uint8:
				f.SetUint(1)
			}
			given[fields.Type().Field(i).Name] = f
		}
	}
	fill(reflect.ValueOf(&o).Elem())
	fill(reflect.ValueOf(&o.OnFailure).Elem())
	parts := reflect.ValueOf(o.toParts())
	if parts.NumField() != len(given)-2 { // Hooks are handed over apart, and OnFailure field by field
		t.Errorf("the parts have %d options of %d", parts.NumField(), len(given)-2)
	}
	for i := range parts.NumField() {
		name, got := parts.Type().Field(i).Name, parts.Field(i)
		if want := given[name]; got.IsZero() || got.Comparable() && !got.Equal(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// unused is a place for dead letters that receives none.
type unused struct{ feed.DeadLetters }

// Each hook receives the context to which the hooks are bound, and each part has the hook of its name.
func TestEachHookReceivesTheContextOfItsRun(t *testing.T) {
	type traceKey struct{}
	var hooks Hooks
	var called []string
	for field, value := range reflect.ValueOf(&hooks).Elem().Fields() {
		value.Set(reflect.MakeFunc(field.Type, func(arguments []reflect.Value) []reflect.Value {
			if ctx := arguments[0].Interface().(context.Context); ctx.Value(traceKey{}) != "trace" {
				t.Errorf("%s received another context", field.Name)
			}
			called = append(called, field.Name)
			return nil
		}))
	}
	parts := reflect.ValueOf(hooks.bindTo(context.WithValue(t.Context(), traceKey{}, "trace")))
	for field, hook := range parts.Fields() {
		var arguments []reflect.Value
		for in := range field.Type.Ins() {
			arguments = append(arguments, reflect.Zero(in))
		}
		hook.Call(arguments)
		if len(called) == 0 || called[len(called)-1] != field.Name {
			t.Errorf("%s called %v", field.Name, called)
		}
	}
	if len(called) != reflect.TypeFor[Hooks]().NumField() {
		t.Errorf("%d hooks were called, of %d", len(called), reflect.TypeFor[Hooks]().NumField())
	}
}

// Each hook has a default, and the parts of the processor call each with the context of the run.
func TestEachHookIsBoundAndHasADefault(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "run")
	var called string
	all, set := Hooks{}.withDefaults(), Hooks{}
	fields := reflect.ValueOf(&set).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if reflect.ValueOf(all).Field(i).IsNil() {
			t.Errorf("%s has no default", name)
		}
		fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
			called, _ = args[0].Interface().(context.Context).Value(key{}).(string)
			called += " " + name
			return nil
		}))
	}
	bound := reflect.ValueOf(set.bindTo(ctx))
	if bound.NumField() != fields.NumField() {
		t.Errorf("the parts have %d hooks of %d", bound.NumField(), fields.NumField())
	}
	for i := range bound.NumField() {
		hook, name := bound.Field(i), bound.Type().Field(i).Name
		if hook.IsNil() {
			t.Errorf("%s is not bound", name)
			continue
		}
		args := make([]reflect.Value, hook.Type().NumIn())
		for n := range args {
			args[n] = reflect.Zero(hook.Type().In(n))
		}
		if hook.Call(args); called != "run "+name {
			t.Errorf("%s calls %q", name, called)
		}
	}
}
