// Package geo computes with GeoJSON geometries on the earth, for the spatial functions of queries.
//
//	g, err := geo.Parse(json)        // Point, LineString, Polygon or MultiPolygon
//	metres := geo.Distance(g, other)
//
// Positions are longitude and latitude in degrees on the ellipsoid WGS 84. Relations (which geometry contains or
// crosses which) are computed by S2 on the sphere, where edges are great circles. Lengths and areas are computed on
// the ellipsoid, along geodesics. The nearest positions of two geometries are found on the sphere, and their distance
// is that of the ellipsoid between them, so a distance is never less than the true one, and is exact for points.
//
// A ring of a polygon has its inside on the left: counter-clockwise rings are ordinary polygons, and a clockwise ring
// is the rest of the earth. A hole is a ring in the other direction.
package geo

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/golang/geo/s2"
	"github.com/tidwall/geodesic"
)

// invalid is a sentence for users about why a text is not a valid geometry.
type invalid string

func (e invalid) Error() string { return string(e) }

// Geometry is a valid GeoJSON geometry.
type Geometry struct {
	points []s2.Point   // a Point has a single point, and no edges
	chains [][]s2.Point // lines, and closed rings of polygons
	region *s2.Polygon  // of a Polygon or MultiPolygon; nil otherwise
	area   float64      // square metres
	size   int
}

// Size returns the number of positions, for the cost of a computation.
func (g *Geometry) Size() int { return g.size }

// Area returns the area in square metres; points and lines have none.
func (g *Geometry) Area() float64 { return g.area }

// position is a longitude and a latitude in degrees, and perhaps an altitude, which is ignored.
type position []float64

// leastRing is the least number of positions in a ring; the last is the first again.
const leastRing = 4

// Parse reads a geometry. The error says why the text is not a valid geometry; one of its sentences is the service's.
func Parse(text []byte) (*Geometry, error) {
	var kind struct {
		Type        string          `json:"type"`
		Coordinates json.RawMessage `json:"coordinates"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, invalid("The value is not a GeoJSON object with the members type and coordinates.")
	}
	g := &Geometry{}
	switch kind.Type {
	case "Point":
		return g, g.addPoint(kind.Coordinates)
	case "LineString":
		return g, g.addLine(kind.Coordinates)
	case "Polygon":
		return g, g.addPolygons(kind.Coordinates, true)
	case "MultiPolygon":
		return g, g.addPolygons(kind.Coordinates, false)
	}
	return nil, invalid(fmt.Sprintf("The type is %.40q: want Point, LineString, Polygon or MultiPolygon.", kind.Type))
}

// point checks a position and converts it.
func (p position) point() (s2.Point, error) {
	switch {
	case len(p) < 2:
		return s2.Point{}, invalid("A position must be an array of a longitude and a latitude.")
	case math.Abs(p[1]) > 90:
		return s2.Point{}, invalid("Latitude values must be between -90 and 90 degrees.")
	case math.Abs(p[0]) > 180:
		return s2.Point{}, invalid("Longitude values must be between -180 and 180 degrees.")
	}
	return s2.PointFromLatLng(s2.LatLngFromDegrees(p[1], p[0])), nil
}

// chain checks positions and converts them. Equal neighbours are one position. Antipodes have no edge, because each
// great circle through one goes through the other.
func chain(positions []position) ([]s2.Point, error) {
	var points []s2.Point
	for _, p := range positions {
		point, err := p.point()
		if err != nil {
			return nil, err
		}
		if n := len(points); n > 0 {
			if points[n-1] == point {
				continue
			}
			if points[n-1].Distance(point) > math.Pi-touching {
				return nil, invalid("Two consecutive positions are opposite each other on the earth, so the edge " +
					"between them is not defined.")
			}
		}
		points = append(points, point)
	}
	return points, nil
}

func (g *Geometry) addPoint(text json.RawMessage) error {
	var p position
	if json.Unmarshal(text, &p) != nil {
		return invalid("The coordinates of a Point must be an array of a longitude and a latitude.")
	}
	point, err := p.point()
	g.points, g.size = []s2.Point{point}, 1
	return err
}

func (g *Geometry) addLine(text json.RawMessage) error {
	var positions []position
	if json.Unmarshal(text, &positions) != nil || len(positions) < 2 {
		return invalid("The coordinates of a LineString must be an array of two or more positions.")
	}
	points, err := chain(positions)
	if err == nil && len(points) < 2 {
		err = invalid("The positions of a LineString must not all be the same.")
	}
	g.chains, g.size = [][]s2.Point{points}, len(points)
	return err
}

// addPolygons adds the rings of a Polygon or MultiPolygon.
func (g *Geometry) addPolygons(text json.RawMessage, single bool) error {
	var polygons [][][]position
	var err error
	if single {
		polygons = make([][][]position, 1)
		err = json.Unmarshal(text, &polygons[0])
	} else {
		err = json.Unmarshal(text, &polygons)
	}
	if err != nil || len(polygons) == 0 {
		return invalid("The coordinates of a Polygon must be an array of rings, and those of a MultiPolygon an " +
			"array of polygons.")
	}
	var loops []*s2.Loop
	for _, rings := range polygons {
		if len(rings) == 0 {
			return invalid("A Polygon must have a ring.")
		}
		for i, ring := range rings {
			points, err := ringOf(ring)
			if err != nil {
				return err
			}
			loops = append(loops, loopOf(points, i > 0))
			g.chains = append(g.chains, append(points, points[0]))
			g.size += len(points)
			g.area += ringArea(ring, i > 0)
		}
	}
	g.region = s2.PolygonFromOrientedLoops(loops)
	if g.region.Validate() != nil || g.crossesItself() {
		return invalid("The rings of the Polygon cross themselves or each other.")
	}
	return nil
}

// crossesItself reports whether two edges of the region cross.
func (g *Geometry) crossesItself() bool {
	index := s2.NewShapeIndex()
	index.Add(g.region)
	crossings, found := s2.NewCrossingEdgeQuery(index), false
	g.eachEdge(func(from, to s2.Point) bool {
		found = len(crossings.Crossings(from, to, g.region, s2.CrossingTypeInterior)) > 0
		return !found
	})
	return found
}

// loopOf returns the loop of a ring. Many programs write holes in the direction of their polygon, so a hole is turned
// round if necessary: it is always the smaller part of the earth.
func loopOf(points []s2.Point, hole bool) *s2.Loop {
	loop := s2.LoopFromPoints(points)
	if hole && loop.IsNormalized() {
		points = slices.Clone(points)
		slices.Reverse(points)
		return s2.LoopFromPoints(points)
	}
	return loop
}

// ringOf checks a ring, and returns its points without the last, which repeats the first.
func ringOf(ring []position) ([]s2.Point, error) {
	if len(ring) < leastRing {
		return nil, invalid("A ring of a Polygon must have four or more positions.")
	}
	points, err := chain(ring)
	switch n := len(points); {
	case err != nil:
		return nil, err
	case points[0] != points[n-1]:
		return nil, invalid("The first and the last position of a ring must be the same.")
	case n < leastRing:
		return nil, invalid("A ring of a Polygon must have three or more different positions.")
	}
	points = points[1:]
	seen := make(map[s2.Point]bool, len(points))
	for _, p := range points {
		if seen[p] {
			return nil, invalid("A ring of the Polygon has a position twice.")
		}
		seen[p] = true
	}
	return points, nil
}

// ringArea returns the area of a ring on the ellipsoid, negative for a hole.
func ringArea(ring []position, hole bool) float64 {
	// Holes have either direction in practice; only the size of their inside counts.
	polygon := geodesic.WGS84.PolygonInit(false)
	for _, p := range ring[:len(ring)-1] {
		polygon.AddPoint(p[1], p[0])
	}
	var area, perimeter float64
	polygon.Compute(false, hole, &area, &perimeter)
	if hole {
		return -math.Abs(area)
	}
	return area
}
