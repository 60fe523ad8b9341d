// Package engine is the ordered map on disk below a document store: a file format that
// notices its own damage, on an LSM tree that a library provides.
//
// The library is cockroachdb/pebble, and no other package of the store knows that. Package
// docstore gives keys and values their meaning; here they are bytes. What has to be known
// of them before a store can be read is the [Schema].
//
// An [Engine] is an open map. [Engine.Get] reads a key, a [Cursor] walks keys in order, a
// [View] is one state for several reads that must agree, and a [Batch] is a set of changes
// that is applied as a whole and is on the disk when [Batch.Commit] returns:
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
// The library deletes as it opens: the files that its manifest does not name, and what it
// cannot read of a log. So the files are verified before ([ErrCorrupt] names the file and
// changes nothing), by an inventory of the logs that is kept here. Then the function given to
// Open reads with [Engine.Find] what its caller keeps in memory. [Engine.NewestLog] says how
// far the newest log of a store reaches that was not closed.
//
// # The disk
//
// The library does not bear a disk that fails: it panics, goes on without a file, or tries again
// for ever. Therefore it stands on a guard, a file system that waits out what may pass. After any
// other error of a write the engine has failed: the guard then only pretends to write, every
// commit returns the reason, and the function given to [Engine.OnFailure] is called with it.
// [Engine.LacksRoom] is asked before a write whether the disk has the reserve that the engine
// needs for what is written already.
//
// # Copies and remains
//
// [Engine.CopyInto] and [Engine.StreamTo] copy the files of one moment while the engine is used;
// [ReceiveInto] makes a directory of the stream. [OpenWreck] reads the logs and tables of a damaged
// store past the library, and lists what is lost.
//
// # Caveats
//
// What a cursor hands out is valid until its next step. A cursor or view that is not closed keeps
// [Engine.Close] waiting, and keeps the files of its state. Nothing here limits the sizes of keys
// and values.
//
// # Where to read on
//
// guard.go says which error of the disk means what, verify.go and logs.go what damage is, and
// pebble.go why the library stands behind interfaces.
package engine
