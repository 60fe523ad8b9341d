package soon

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWritesDoNotOverlapAndMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state, stored, writes, at atomic.Int64
		w := New(time.Second, func(f func()) { go f() }, func() error {
			if at.Add(1) > 1 {
				t.Error("two writes at once")
			}
			now := state.Load()
			time.Sleep(10 * time.Millisecond)
			stored.Store(now)
			writes.Add(1)
			at.Add(-1)
			return nil
		})
		for range 20 {
			state.Add(1)
			w.Write()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if stored.Load() != state.Load() || writes.Load() > 4 {
			t.Errorf("%d is stored of %d, in %d writes", stored.Load(), state.Load(), writes.Load())
		}
	})
}

func TestAChangeIsWrittenWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		w := New(time.Second, func(f func()) { go f() }, func() error { writes++; return nil })
		if w.Due() != Never {
			t.Error("due before a change")
		}
		synctest.Wait()
		if writes != 0 {
			t.Error("written before a change")
		}
		w.Write()
		synctest.Wait()
		w.Changed()
		if left := w.Due(); left != time.Second || writes != 1 {
			t.Errorf("due in %v, after %d writes", left, writes)
		}
		time.Sleep(400 * time.Millisecond)
		if left := w.Due(); left != 600*time.Millisecond || writes != 1 {
			t.Errorf("400 ms later due in %v, after %d writes", left, writes)
		}
		time.Sleep(600 * time.Millisecond)
		w.Due()
		synctest.Wait()
		if left := w.Due(); left != Never || writes != 2 {
			t.Errorf("due in %v, after %d writes", left, writes)
		}
	})
}

func TestNothingIsWrittenAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		w := New(time.Second, func(f func()) { go f() }, func() error { writes++; return errors.New("over") })
		for range 3 {
			w.Write()
			synctest.Wait()
		}
		if writes != 1 {
			t.Errorf("%d writes", writes)
		}
	})
}

// The write that is under way has begun with the state before the change.
func TestAChangeDuringAWriteIsWrittenWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		w := New(time.Second, func(f func()) { go f() }, func() error {
			writes++
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		w.Write()
		time.Sleep(5 * time.Millisecond)
		w.Changed()
		time.Sleep(2 * time.Second)
		w.Due()
		time.Sleep(time.Second)
		synctest.Wait()
		if writes != 2 {
			t.Errorf("%d writes, want a second one for the change during the first", writes)
		}
	})
}

func TestWaitWaitsForAllWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		w := New(time.Second, func(f func()) { go f() }, func() error {
			time.Sleep(time.Second)
			if writes++; writes == 3 {
				return errors.New("over")
			}
			return nil
		})
		w.Wait() // nothing was asked for
		begun := time.Now()
		w.Write()
		time.Sleep(time.Millisecond)
		w.Write() // once more after the first
		w.Wait()
		if took := time.Since(begun); writes != 2 || took != 2*time.Second {
			t.Errorf("%d writes after %v, want 2 after 2 s", writes, took)
		}
		for range 2 {
			w.Write() // the first of them fails
			w.Wait()
		}
		if writes != 3 {
			t.Errorf("%d writes, want 3", writes)
		}
	})
}
