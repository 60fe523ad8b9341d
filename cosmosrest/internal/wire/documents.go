package wire

import (
	"strconv"
	"sync"
)

// Documents is the body of a page of documents, or of rows: {"_rid":…,"Documents":[…],"_count":n}. Clients cut the
// documents out between the first and the last bracket.
type Documents struct {
	text  []byte
	count int
}

// Buffers of bodies are used again, unless they have become large.
var bodies = sync.Pool{New: func() any { return &Documents{text: make([]byte, 0, 64<<10)} }}

const maxPooled = 8 << 20 // bytes of a buffer that is kept

// NewDocuments begins the body of a page of a container, given by its resource id. It ends with Free.
func NewDocuments(rid string) *Documents {
	d, ok := bodies.Get().(*Documents)
	if !ok {
		d = &Documents{}
	}
	d.count = 0
	d.text = append(append(append(d.text[:0], `{"_rid":"`...), rid...), `","Documents":[`...)
	return d
}

// Count is how many documents there are.
func (d *Documents) Count() int { return d.count }

// Size is how many bytes the body has.
func (d *Documents) Size() int { return len(d.text) }

// Fits reports whether a document has room in a page; the first one has, whatever its size.
func (d *Documents) Fits(doc []byte) bool {
	return d.count == 0 || len(d.text)+len(doc) < MaxPage
}

// Add appends a document.
func (d *Documents) Add(doc []byte) {
	d.next()
	d.text = append(d.text, doc...)
}

// next begins a document.
func (d *Documents) next() {
	if d.count > 0 {
		d.text = append(d.text, ',')
	}
	d.count++
}

// Finish is the whole body, which is valid until Free.
func (d *Documents) Finish() []byte {
	d.text = append(d.text, `],"_count":`...)
	d.text = strconv.AppendInt(d.text, int64(d.count), 10)
	d.text = append(d.text, '}')
	return d.text
}

// Free gives the buffer back; nobody may use the body any more.
func (d *Documents) Free() {
	if cap(d.text) <= maxPooled {
		bodies.Put(d)
	}
}
