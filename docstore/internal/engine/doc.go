// Package engine is the ordered map on disk below a document store. The engine adds the detection of damaged files to
// an LSM tree, which a library provides.
//
// The library is cockroachdb/pebble, and only this package of the store depends on it. Package docstore gives keys
// and values their meaning; for the engine they are bytes. A [Schema] contains the facts about keys and values that
// the engine needs before reading a store.
//
// An [Engine] is an open map. [Engine.Get] reads a key, and a [Cursor] walks keys in order. A [View] is a state for
// several reads that must agree. A [Batch] is a set of changes applied as a whole; they are on the disk when
// [Batch.Commit] returns:
//
//	e, err := engine.Open(ctx, dir, engine.Options{Schema: schema}, func(e *engine.Engine) error {
//		_, found, err := e.Format()
//		if err != nil || found {
//			return err
//		}
//		w := e.NewBatch(0)
//		w.Set(schema.FormatKey, []byte("2"))
//		return w.Commit()
//	})
//	…
//	defer e.Close()
//	e.OnFailure(stopServing)
//	w := e.NewBatch(0)
//	w.Set([]byte("key"), []byte("value"))
//	err = w.Commit()
//	…
//	value, found, err := e.Get(nil, []byte("key"))
//
// # Opening
//
// When the library opens a store, it deletes the files that its manifest does not name, and the part of a log that it
// cannot read. So the engine verifies the files before, with an inventory of the logs that the engine maintains. If a
// file is damaged, [ErrCorrupt] names the file, and nothing has been changed. Then the function given to Open reads,
// with [Engine.Find], the data that its caller keeps in memory. If the store had not been closed, [Engine.NewestLog]
// reports how far its newest log reaches.
//
// # The disk
//
// The library cannot handle a disk that fails: the library panics, goes on without a file, or retries for ever.
// Therefore the library uses a guard, a file system that waits while a temporary error lasts. After any other error
// of a write, the engine has failed: the guard only pretends to write, every commit returns the reason, and the
// function given to [Engine.OnFailure] is called with the reason. Before a write, [Engine.LacksRoom] reports whether
// the disk lacks the reserve that the engine needs for the data written already.
//
// # Copies and remains
//
// [Engine.CopyInto] and [Engine.StreamTo] copy the files of one moment while the engine is in use; [ReceiveInto]
// creates a directory from the stream. [OpenWreck] reads the logs and tables of a damaged store without opening the
// store in the library, and lists the losses.
//
// # Caveats
//
// Key and value of a cursor are valid until its next step. If a cursor or view is not closed, [Engine.Close] waits,
// and the files of its state remain. The engine does not limit the sizes of keys and values.
//
// # Where to read on
//
// guard.go describes the errors of the disk and their consequences, verify.go and logs.go define damage, and
// pebble.go explains why the library is used through interfaces.
package engine
