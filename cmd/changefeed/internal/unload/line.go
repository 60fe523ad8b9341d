package unload

import (
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
)

// salvaged is the result of a salvage for programs.
type salvaged struct {
	OK         bool                    `json:"ok" about:"nothing is known to be lost"`
	Documents  int                     `json:"documents" about:"number of documents that were written"`
	Containers []salvagedContainer     `json:"containers" about:"the containers of the store"`
	Lost       []docstore.Loss         `json:"lost" about:"parts of files that could not be read"`
	Missing    []docstore.MissingItem  `json:"missing" about:"documents that are known to have been there"`
	Doubtful   []docstore.DoubtfulItem `json:"doubtful" about:"documents that were written, and may be old"`
}

// salvagedContainer is a container of a damaged store.
type salvagedContainer struct {
	Name      string          `json:"name" about:"container N if the record is lost"`
	Documents int             `json:"documents" about:"number of documents that could be read"`
	Counted   *int64          `json:"counted" about:"number of documents by the stored count"`
	Head      *int64          `json:"head" about:"newest LSN"`
	Lost      []docstore.LSNs `json:"lost_lsns" about:"LSNs of lost writes, of which nothing else is known"`
}

// ReportedAs implements [report.Value].
func (salvaged) ReportedAs() string { return "salvage" }

// SalvageKind describes the line of changefeed export --salvage on standard error.
var SalvageKind = report.Kind{
	Name: "salvage", About: "Losses of a damaged store, on standard error: export --salvage.", Of: salvaged{},
}

// Line returns the result for programs.
func (r *Remains) Line() report.Value {
	line := salvaged{
		OK: r.Err() == nil, Documents: r.written, Containers: []salvagedContainer{},
		Lost: list(r.Lost), Missing: list(r.Missing), Doubtful: list(r.Doubtful),
	}
	for _, c := range r.Containers {
		line.Containers = append(line.Containers, salvagedContainer{
			Name: c.Name, Documents: c.Documents, Counted: known(c.Counted), Head: known(c.Head), Lost: list(c.Lost),
		})
	}
	return line
}

// list returns a list that is not nil, so that no list is null for programs.
func list[T any](some []T) []T { return append([]T{}, some...) }

// known returns a number, or nil for a negative number, which stands for an unknown number.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
