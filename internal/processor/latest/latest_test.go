package latest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAValueHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[string]
		if got, at := v.Get(); got != "" || !at.IsZero() {
			t.Errorf("%q of %v before the first", got, at)
		}
		v.Set("one")
		time.Sleep(time.Second)
		v.Set("two")
		begun := time.Now()
		time.Sleep(time.Second)
		if got, at := v.Get(); got != "two" || !at.Equal(begun) {
			t.Errorf("%q of %v, want the second, of %v", got, at, begun)
		}
	})
}

func TestOneValueOfAKeyStands(t *testing.T) {
	var s Set[string, int]
	if s.Values() != nil {
		t.Errorf("%v stand before the first", s.Values())
	}
	s.Remove("b")
	s.Put("c", 1)
	s.Put("b", 2)
	s.Put("a", 3)
	s.Put("c", 4)
	if got := s.Values(); !slices.Equal(got, []int{3, 2, 4}) {
		t.Errorf("%v stand", got)
	}
	s.Remove("a", "c", "x")
	if got := s.Values(); !slices.Equal(got, []int{2}) {
		t.Errorf("%v stand after two were removed", got)
	}
}

// What is seen again counts from the first time, and what was missing once begins anew.
func TestSinceCountsFromTheFirstTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Since[string]
		s.See([]string{"a", "b"})
		time.Sleep(time.Minute)
		s.See([]string{"b", "c"})
		time.Sleep(time.Minute)
		s.See([]string{"a", "b", "c"})
		time.Sleep(time.Second)
		for key, want := range map[string]time.Duration{
			"a": time.Second, "b": 2*time.Minute + time.Second,
			"c": time.Minute + time.Second, "d": 0,
		} {
			if got := s.For(key); got != want || s.Sees(key) != (want > 0) {
				t.Errorf("%s was seen for %v, and is seen: %v; want %v", key, got, s.Sees(key), want)
			}
		}
	})
}
