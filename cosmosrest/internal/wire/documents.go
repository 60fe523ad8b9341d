package wire

import (
	"strconv"
	"sync"
)

// Documents is the body of a page of documents, or of rows: {"_rid":…,"Documents":[…],"_count":n}. The body is built
// by appending, because the documents are JSON already. Clients cut the documents out between the first and the last
// bracket.
type Documents struct {
	text  []byte
	count int
}

// bodies is a pool of buffers, because a page has megabytes and a server sends hundreds of pages a second.
var bodies = sync.Pool{New: func() any { return &Documents{text: make([]byte, 0, 64<<10)} }}

// maxPooled is the largest size of a buffer that returns to the pool. Without this limit, the buffer of a single
// large row would stay in memory for ever.
const maxPooled = 8 << 20 // bytes

// NewDocuments begins the body of a page of the container with this resource id. The caller must call Free.
func NewDocuments(rid string) *Documents {
	d, ok := bodies.Get().(*Documents)
	if !ok {
		d = &Documents{}
	}
	d.count = 0
	d.text = append(append(append(d.text[:0], `{"_rid":"`...), rid...), `","Documents":[`...)
	return d
}

// Count returns the number of documents.
func (d *Documents) Count() int { return d.count }

// Size returns the number of bytes in the body.
func (d *Documents) Size() int { return len(d.text) }

// Fits reports whether the page has room for a document. The first document always fits, because an empty page would
// be followed by the same page for ever.
func (d *Documents) Fits(doc []byte) bool {
	return d.count == 0 || len(d.text)+len(doc) < MaxPage
}

// Add appends a document.
func (d *Documents) Add(doc []byte) {
	d.beginNext()
	d.text = append(d.text, doc...)
}

// beginNext begins a document.
func (d *Documents) beginNext() {
	if d.count > 0 {
		d.text = append(d.text, ',')
	}
	d.count++
}

// Finish returns the whole body, which is valid until Free.
func (d *Documents) Finish() []byte {
	d.text = append(d.text, `],"_count":`...)
	d.text = strconv.AppendInt(d.text, int64(d.count), 10)
	d.text = append(d.text, '}')
	return d.text
}

// Free returns the buffer; the body must not be used any more.
func (d *Documents) Free() {
	if cap(d.text) <= maxPooled {
		bodies.Put(d)
	}
}
