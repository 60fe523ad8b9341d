package geo

import (
	"slices"

	"github.com/golang/geo/s1"
	"github.com/golang/geo/s2"
	"github.com/tidwall/geodesic"
)

// Relations of two geometries. They compare each edge of one with each edge of the other, which is obvious and exact,
// but slow for large geometries. Callers limit the product of the sizes.

// Distance returns the distance in metres; geometries that touch or overlap have the distance 0.
func Distance(a, b *Geometry) float64 {
	if Intersects(a, b) {
		return 0
	}
	near := nearest{apart: s1.InfChordAngle()}
	a.eachEdge(func(a0, a1 s2.Point) bool {
		b.eachEdge(func(b0, b1 s2.Point) bool {
			x, y := s2.EdgePairClosestPoints(a0, a1, b0, b1)
			near.consider(x, y)
			return true
		})
		return true
	})
	return metres(near.x, near.y)
}

// nearest is the nearest pair of points so far.
type nearest struct {
	x, y  s2.Point
	apart s1.ChordAngle
}

func (n *nearest) consider(x, y s2.Point) {
	if d := s2.ChordAngleBetweenPoints(x, y); d < n.apart {
		n.x, n.y, n.apart = x, y, d
	}
}

// metres returns the length of the geodesic between two points.
func metres(x, y s2.Point) float64 {
	from, to := s2.LatLngFromPoint(x), s2.LatLngFromPoint(y)
	var length float64
	geodesic.WGS84.Inverse(from.Lat.Degrees(), from.Lng.Degrees(), to.Lat.Degrees(), to.Lng.Degrees(), &length,
		nil, nil)
	return length
}

// eachEdge visits the edges, and a point as an edge from itself to itself, until visit returns false.
func (g *Geometry) eachEdge(visit func(from, to s2.Point) bool) {
	for _, p := range g.points {
		if !visit(p, p) {
			return
		}
	}
	for _, chain := range g.chains {
		for i := range chain[1:] {
			if !visit(chain[i], chain[i+1]) {
				return
			}
		}
	}
}

// touching is the greatest angle between two points that count as the same: about 0.1 mm on the earth, which is more
// than the error of a projection onto an edge.
const touching = s1.Angle(1e-11)

// Intersects reports whether the geometries have a point in common. Their borders belong to them.
func Intersects(a, b *Geometry) bool {
	found := false
	a.eachEdge(func(a0, a1 s2.Point) bool {
		b.eachEdge(func(b0, b1 s2.Point) bool {
			found = meet(a0, a1, b0, b1)
			return !found
		})
		return !found
	})
	if found {
		return true
	}
	// The borders are apart, so one contains the other whole, or not at all.
	if b.region != nil && containsAny(b.region, a) || a.region != nil && containsAny(a.region, b) {
		return true
	}
	return a.region != nil && b.region != nil && a.region.Intersects(b.region)
}

// containsAny reports whether a region contains the first position of any part of a geometry.
func containsAny(region *s2.Polygon, g *Geometry) bool {
	if slices.ContainsFunc(g.points, region.ContainsPoint) {
		return true
	}
	for _, chain := range g.chains {
		if region.ContainsPoint(chain[0]) {
			return true
		}
	}
	return false
}

// meet reports whether two edges have a point in common.
func meet(a0, a1, b0, b1 s2.Point) bool {
	if a0 != a1 && b0 != b1 && s2.CrossingSign(a0, a1, b0, b1) == s2.Cross {
		return true
	}
	return s2.DistanceFromSegment(a0, b0, b1) <= touching || s2.DistanceFromSegment(a1, b0, b1) <= touching ||
		s2.DistanceFromSegment(b0, a0, a1) <= touching || s2.DistanceFromSegment(b1, a0, a1) <= touching
}

// Within reports whether no point of a is outside b.
func Within(a, b *Geometry) bool {
	switch {
	case b.region == nil && a.region != nil:
		return false
	case b.region == nil:
		return onBorder(a, b)
	case a.region != nil:
		return b.region.Contains(a.region)
	}
	within := true
	a.eachEdge(func(a0, a1 s2.Point) bool {
		within = b.holds(a0) && b.holds(a1)
		b.eachEdge(func(b0, b1 s2.Point) bool {
			within = within && (a0 == a1 || s2.CrossingSign(a0, a1, b0, b1) != s2.Cross)
			return within
		})
		return within
	})
	return within
}

// holds reports whether a point is in a region or on its border.
func (g *Geometry) holds(p s2.Point) bool {
	if g.region.ContainsPoint(p) {
		return true
	}
	return g.touches(p)
}

// touches reports whether a point is on an edge, or is the point of a Point.
func (g *Geometry) touches(p s2.Point) bool {
	found := false
	g.eachEdge(func(from, to s2.Point) bool {
		found = s2.DistanceFromSegment(p, from, to) <= touching
		return !found
	})
	return found
}

// onBorder reports whether each position of a, and the middle of each of its edges, is on the line or point b.
func onBorder(a, b *Geometry) bool {
	on := true
	a.eachEdge(func(from, to s2.Point) bool {
		on = b.touches(from) && b.touches(to) && b.touches(s2.Point{Vector: from.Add(to.Vector).Normalize()})
		return on
	})
	return on
}
