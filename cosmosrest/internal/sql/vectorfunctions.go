package sql

import (
	"math"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// VectorDistance, and the order of rows by it.
//
// The distance is always computed from all numbers of both vectors, so a result is exact, whatever vector index the
// container has. Numbers are doubles, whatever their data type in the container's policy. The container's vector
// embedding policy decides about the distance function if the call does not.

// The distance functions, as a vector embedding policy names them.
const (
	cosineDistance    = "cosine"
	dotProduct        = "dotproduct"
	euclideanDistance = "euclidean"
)

// vectorDistance is VectorDistance(a, b, bruteForce, options), and the function of plans for it, _VectorScore.
type vectorDistance struct {
	a, b    vectorArg
	brute   node // nil if there is none
	options node // nil if there is none
	score   bool // the function of plans, which may be sorted in both directions
}

// vectorArg is a vector of a call. A vector that is the same in all documents is decoded once.
type vectorArg struct {
	node  node
	fixed bool
	at    int // offset in the query, which identifies a fixed vector
}

// vectorCall makes the rule for calls of VectorDistance or, if score is true, _VectorScore.
func vectorCall(score bool) specialCall {
	return func(c *compiler, name string, list []*expr, at int) node {
		if !c.checkArity(name, len(list), 2, 4, at) {
			return constant{}
		}
		c.comparesVectors = true
		nodes := c.compileList(list)
		n := vectorDistance{a: newVectorArg(nodes[0], list[0]), b: newVectorArg(nodes[1], list[1]), score: score}
		if len(nodes) > 2 {
			n.brute = nodes[2]
		}
		if len(nodes) > 3 {
			n.options = nodes[3]
		}
		return n
	}
}

func newVectorArg(n node, e *expr) vectorArg { return vectorArg{n, isConstant(n), e.Pos.Offset} }

// isConstant reports whether a node has the same value in all documents.
func isConstant(n node) bool {
	switch n.(type) {
	case constant, parameter:
		return true
	}
	return false
}

// eval computes the distance. Vectors of different lengths have none, and neither have values that are not vectors.
func (n vectorDistance) eval(f *frame) value {
	a, ok := n.a.numbers(f)
	if !ok {
		return value{}
	}
	b, ok := n.b.numbers(f)
	if !ok || len(a) != len(b) || !n.takesOptions(f) || !f.spendWork(opWork+len(a)) {
		return value{}
	}
	return numberValue(distanceOf(n.function(f), a, b))
}

// distanceOf computes a distance function. With a vector of zeros, cosine is not a number.
func distanceOf(function string, a, b []float64) float64 {
	var dot, lengthA, lengthB, apart float64
	for i, x := range a {
		y := b[i]
		dot += x * y
		lengthA += x * x
		lengthB += y * y
		apart += (x - y) * (x - y)
	}
	switch function {
	case dotProduct:
		return dot
	case euclideanDistance:
		return math.Sqrt(apart)
	}
	return dot / math.Sqrt(lengthA) / math.Sqrt(lengthB)
}

// takesOptions reports whether the third argument is a boolean and the fourth an object, if they are present.
func (n vectorDistance) takesOptions(f *frame) bool {
	if n.brute != nil && !n.brute.eval(f).isBool() {
		return false
	}
	return n.options == nil || n.options.eval(f).kind == object
}

// function returns the distance function of the call: from its options, from the policy for the path of one of its
// vectors, or else cosine.
func (n vectorDistance) function(f *frame) string {
	if n.options != nil {
		if v := n.options.eval(f); v.kind == object {
			if named := rawValue(rawjson.Lookup(v.raw, "distanceFunction")); named.kind != undefined {
				return f.namedDistance(named)
			}
		}
	}
	for _, arg := range []vectorArg{n.a, n.b} {
		if path, ok := pathOf(arg.node, f); ok && f.distances[path] != "" {
			return f.distances[path]
		}
	}
	return cosineDistance
}

// namedDistance returns the distance function with a name, in lower case. Any other name is an error of the query.
func (f *frame) namedDistance(name value) string {
	if name.kind == str {
		switch lower := strings.ToLower(string(name.bytes())); lower {
		case cosineDistance, dotProduct, euclideanDistance:
			return lower
		}
	}
	f.failWith(failf(-1, "VectorDistance has the distanceFunction %s: want cosine, dotproduct or euclidean.",
		clip(string(name.appendJSON(nil)))))
	return cosineDistance
}

// pathOf returns the path of a node in the document, as a policy writes it: /a/b. Steps with a parameter count, as in
// c[@name].
func pathOf(n node, f *frame) (string, bool) {
	switch n := n.(type) {
	case path:
		var text strings.Builder
		for _, step := range n.steps {
			if step.index >= 0 {
				return "", false
			}
			text.WriteString("/" + step.name)
		}
		return text.String(), n.slot == rootSlot
	case index:
		base, ok := pathOf(n.base, f)
		if !ok || !isConstant(n.key) {
			return "", false
		}
		key := n.key.eval(f)
		return base + "/" + string(key.bytes()), key.kind == str
	}
	return "", false
}

// numbers returns the elements of a vector.
func (a vectorArg) numbers(f *frame) ([]float64, bool) {
	if held, ok := f.vectors[a.at]; a.fixed && ok {
		return held, held != nil
	}
	v := a.node.eval(f)
	var all []float64
	if v.kind == array {
		all = f.vectorOf(v)
	}
	if a.fixed {
		if f.vectors == nil {
			f.vectors = map[int][]float64{}
		}
		f.vectors[a.at] = all
	}
	return all, all != nil
}

// vectorOf decodes an array of numbers. The result is nil for any other array, and for an empty array.
func (f *frame) vectorOf(v value) []float64 {
	if !f.spendWork(slowWork * len(v.raw)) {
		return nil
	}
	var all []float64
	for raw := range rawjson.Elements(v.raw) {
		element := rawValue(raw)
		if element.kind != number {
			return nil
		}
		all = append(all, element.float())
	}
	return all
}

// closeness is a sort key by VectorDistance: the nearer, the greater. Rows come in descending order, the nearest
// first.
type closeness struct{ distance vectorDistance }

func (n closeness) eval(f *frame) value {
	v := n.distance.eval(f)
	if v.kind == number && n.ascends(f) {
		return numberValue(-v.float())
	}
	return v
}

// ascends reports whether the nearest row has the least distance.
func (n closeness) ascends(f *frame) bool { return n.distance.function(f) == euclideanDistance }

// sortKey returns the key of ORDER BY VectorDistance. As in the service, the query must not name a direction.
func (n vectorDistance) sortKey(c *compiler, ordered *orderRef) orderKey {
	switch {
	case !ordered.Asc && !ordered.Desc:
		return orderKey{node: closeness{n}, desc: true, required: true}
	case !n.score:
		c.failFirst(failf(ordered.Expr.Pos.Offset,
			"Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported."))
	}
	return orderKey{node: n, desc: ordered.Desc, required: true}
}

// Distances sets the distance functions of the container's vector embedding policy, by path.
func (b *Bound) Distances(byPath map[string]string) { b.f.distances = byPath }

// ComparesVectors reports whether the query has a call of VectorDistance, so that [Bound.Distances] matters.
func (q *Query) ComparesVectors() bool { return q.comparesVectors }
