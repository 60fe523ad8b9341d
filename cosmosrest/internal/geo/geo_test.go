package geo

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func parse(t testing.TB, text string) *Geometry {
	t.Helper()
	g, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return g
}

func pointText(lng, lat float64) string {
	b, _ := json.Marshal(map[string]any{"type": "Point", "coordinates": []float64{lng, lat}})
	return string(b)
}

// The values are those of the service's documentation. The service does not compute geodesics with all digits, so its
// values differ from the 8th digit on.
func TestDocumentedMeasures(t *testing.T) {
	office := parse(t, pointText(-122.11758113953535, 47.66901087006131))
	headquarters := parse(t, pointText(-122.12826822304672, 47.63980239335718))
	square := `{"type":"Polygon","coordinates":[[[31.8,-5],[32,-5],[32,-4.7],[31.8,-4.7],[31.8,-5]]]}`
	for _, test := range []struct {
		name      string
		got, want float64
	}{
		{"headquarters", Distance(headquarters, office), 3345.269817267368},
		{"research", Distance(parse(t, pointText(-96.84368664765994, 46.81297794314663)), office), 1907438.421299902},
		{"area", parse(t, square).Area(), 735970283.0522614},
	} {
		if math.Abs(test.got/test.want-1) > 1e-7 {
			t.Errorf("%s is %v, want %v", test.name, test.got, test.want)
		}
	}
}

// The second, obvious evaluation: the formulas of Vincenty, which converge for points that are not nearly opposite.
func TestDistancesOfPointsAreThoseOfVincenty(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		lng1, lat1 := draw.Float64()*360-180, draw.Float64()*180-90
		lng2, lat2 := lng1+draw.Float64()*200-100, draw.Float64()*180-90
		lng2 -= 360 * math.Round(lng2/360)
		got := Distance(parse(t, pointText(lng1, lat1)), parse(t, pointText(lng2, lat2)))
		want := vincenty(lng1, lat1, lng2, lat2)
		if math.Abs(got-want) > 1e-3 {
			t.Errorf("from %v %v to %v %v: %v m, want %v m", lng1, lat1, lng2, lat2, got, want)
		}
	}
}

func vincenty(lng1, lat1, lng2, lat2 float64) float64 {
	const a, f = 6378137.0, 1 / 298.257223563
	b, rad := a*(1-f), math.Pi/180
	u1, u2 := math.Atan((1-f)*math.Tan(lat1*rad)), math.Atan((1-f)*math.Tan(lat2*rad))
	l := (lng2 - lng1) * rad
	lambda := l
	var sinS, cosS, s, cos2a, cos2m float64
	for range 1000 {
		sinS = math.Hypot(math.Cos(u2)*math.Sin(lambda),
			math.Cos(u1)*math.Sin(u2)-math.Sin(u1)*math.Cos(u2)*math.Cos(lambda))
		cosS = math.Sin(u1)*math.Sin(u2) + math.Cos(u1)*math.Cos(u2)*math.Cos(lambda)
		s = math.Atan2(sinS, cosS)
		sinA := math.Cos(u1) * math.Cos(u2) * math.Sin(lambda) / sinS
		cos2a = 1 - sinA*sinA
		cos2m = cosS - 2*math.Sin(u1)*math.Sin(u2)/cos2a
		c := f / 16 * cos2a * (4 + f*(4-3*cos2a))
		next := l + (1-c)*f*sinA*(s+c*sinS*(cos2m+c*cosS*(2*cos2m*cos2m-1)))
		if math.Abs(next-lambda) < 1e-14 {
			break
		}
		lambda = next
	}
	u := cos2a * (a*a - b*b) / (b * b)
	x := 1 + u/16384*(4096+u*(-768+u*(320-175*u)))
	y := u / 1024 * (256 + u*(-128+u*(74-47*u)))
	delta := y * sinS * (cos2m + y/4*(cosS*(2*cos2m*cos2m-1)-y/6*cos2m*(4*sinS*sinS-3)*(4*cos2m*cos2m-3)))
	return b * x * (s - delta)
}

// Near the equator a small polygon is nearly flat, so that a point is in it if a ray from the point crosses its border
// an odd number of times, and its area is that of the flat polygon.
func TestSmallPolygonsAreFlat(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		ring := star(draw, 5+draw.IntN(6))
		text, _ := json.Marshal(map[string]any{"type": "Polygon", "coordinates": [][][]float64{ring}})
		g := parse(t, string(text))
		// A degree of longitude and of latitude at the equator of the ellipsoid, in metres.
		want := flatArea(ring) * 111319.49 * 110574.27
		if math.Abs(g.Area()/want-1) > 1e-3 {
			t.Errorf("the area of %s is %v, want about %v", text, g.Area(), want)
		}
		for range 50 {
			x, y := draw.Float64()*0.3-0.15, draw.Float64()*0.3-0.15
			p, inside := parse(t, pointText(x, y)), rayCrosses(ring, x, y)
			if flatGap(ring, x, y) < 1e-4 {
				continue // too near to the border for flat geometry
			}
			if Within(p, g) != inside || Intersects(p, g) != inside || Intersects(g, p) != inside {
				t.Fatalf("the point %v %v is inside %s: %v, want %v", x, y, text, Within(p, g), inside)
			}
			gap := flatGap(ring, x, y) * 110900
			if got := Distance(p, g); inside && got != 0 || !inside && math.Abs(got/gap-1) > 0.01 {
				t.Fatalf("the point %v %v is %v m from %s, want about %v m", x, y, got, text, gap)
			}
		}
	}
}

// star draws a ring around the origin, counter-clockwise.
func star(draw *rand.Rand, n int) (ring [][]float64) {
	for i := range n {
		angle, r := 2*math.Pi*(float64(i)+draw.Float64()*0.8)/float64(n), 0.05+draw.Float64()*0.05
		ring = append(ring, []float64{r * math.Cos(angle), r * math.Sin(angle)})
	}
	return append(ring, ring[0])
}

func flatArea(ring [][]float64) (twice float64) {
	for i := range ring[1:] {
		twice += ring[i][0]*ring[i+1][1] - ring[i+1][0]*ring[i][1]
	}
	return twice / 2
}

func rayCrosses(ring [][]float64, x, y float64) (inside bool) {
	for i := range ring[1:] {
		a, b := ring[i], ring[i+1]
		if a[1] > y != (b[1] > y) && x < a[0]+(b[0]-a[0])*(y-a[1])/(b[1]-a[1]) {
			inside = !inside
		}
	}
	return inside
}

// flatGap is the distance of a point to the border, in degrees.
func flatGap(ring [][]float64, x, y float64) float64 {
	least := math.Inf(1)
	for i := range ring[1:] {
		a, b := ring[i], ring[i+1]
		dx, dy := b[0]-a[0], b[1]-a[1]
		at := max(0, min(1, ((x-a[0])*dx+(y-a[1])*dy)/(dx*dx+dy*dy)))
		least = min(least, math.Hypot(x-a[0]-at*dx, y-a[1]-at*dy))
	}
	return least
}

const (
	europe = `{"type":"Polygon","coordinates":[[[-60,20],[70,20],[70,70],[-60,70],[-60,20]]]}`
	ringed = `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[3,3],[3,6],[6,6],[6,3],[3,3]]]}`
	// The hole has the direction of the polygon.
	careless = `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[3,3],[6,3],[6,6],[3,6],[3,3]]]}`
	rest     = `{"type":"Polygon","coordinates":[[[0,0],[0,9],[9,9],[9,0],[0,0]]]}` // clockwise: all but the square
	around   = `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]]]}`
	middle   = `{"type":"Polygon","coordinates":[[[3,3],[6,3],[6,6],[3,6],[3,3]]]}`
	triangle = `{"type":"Polygon","coordinates":[[[20,1],[21,1],[21,2],[20,1]]]}`
	inner    = `{"type":"Polygon","coordinates":[[[1,1],[2,1],[2,2],[1,2],[1,1]]]}`
	plug     = `{"type":"Polygon","coordinates":[[[4,4],[5,4],[5,5],[4,5],[4,4]]]}`
	pair     = `{"type":"MultiPolygon","coordinates":[[[[1,1],[2,1],[2,2],[1,2],[1,1]]],[[[20,1],[21,1],[21,2],[20,1]]]]}`
	line     = `{"type":"LineString","coordinates":[[0,0],[0,40]]}`
	across   = `{"type":"LineString","coordinates":[[-1,1],[10,1]]}`
	within   = `{"type":"LineString","coordinates":[[1,1],[1,8]]}`
)

func TestRelations(t *testing.T) {
	for _, test := range []struct {
		a, b               string
		intersects, within bool
	}{
		// The southern edge is a great circle, which reaches 40.7 degrees north in its middle.
		{line, europe, false, false},
		{pointText(0, 40), europe, false, false},
		{pointText(0, 41), europe, true, true},
		{pointText(0, 10), europe, false, false},
		{pointText(4.5, 4.5), ringed, false, false},
		{pointText(4.5, 4.5), careless, false, false},
		{pointText(1, 1), ringed, true, true},
		{pointText(0, 5), ringed, true, true}, // on the border
		{pointText(0, 0), ringed, true, true}, // a corner
		{inner, ringed, true, true},
		{ringed, inner, true, false},
		{plug, ringed, false, false},
		{across, ringed, true, false},
		{within, ringed, true, true},
		{pair, ringed, true, false},
		{inner, pair, true, true},
		{pointText(20.9, 1.5), pair, true, true},
		{pointText(100, 50), rest, true, true},
		{pointText(5, 5), rest, false, false},
		{line, line, true, true},
		{pointText(0, 20), line, true, true},
		{pointText(1, 20), line, false, false},
		{pointText(1, 2), pointText(1, 2), true, true},
		{pointText(1, 2), pointText(1, 3), false, false},
		{inner, line, false, false},
	} {
		a, b := parse(t, test.a), parse(t, test.b)
		if got := Intersects(a, b); got != test.intersects || Intersects(b, a) != got {
			t.Errorf("%s and %s intersect: %v, want %v", test.a, test.b, got, test.intersects)
		}
		if got := Within(a, b); got != test.within {
			t.Errorf("%s is within %s: %v, want %v", test.a, test.b, got, test.within)
		}
		if got := Distance(a, b); got == 0 != test.intersects {
			t.Errorf("%s is %v m from %s, want 0 only if they intersect", test.a, got, test.b)
		}
	}
}

func TestAreas(t *testing.T) {
	square := parse(t, ringed).Area()
	if parse(t, careless).Area() != square {
		t.Errorf("the direction of a hole changes the area from %v to %v", square, parse(t, careless).Area())
	}
	if parse(t, line).Area() != 0 || parse(t, pointText(1, 2)).Area() != 0 {
		t.Error("a line or a point has an area")
	}
	outer, hole := parse(t, around).Area(), parse(t, middle).Area()
	if got := square - (outer - hole); math.Abs(got) > 1 {
		t.Errorf("a square with a hole has %v square metres, want %v less %v", square, outer, hole)
	}
	first, second := parse(t, inner).Area(), parse(t, triangle).Area()
	if got := parse(t, pair).Area() - (first + second); math.Abs(got) > 1 {
		t.Errorf("two polygons have %v square metres, want %v and %v", parse(t, pair).Area(), first, second)
	}
	const earth = 510065621724088.44 // square metres of the ellipsoid
	whole := `{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]]]}`
	if got := parse(t, whole).Area() + parse(t, rest).Area(); math.Abs(got/earth-1) > 1e-12 {
		t.Errorf("a square and the rest of the earth have %v square metres, want %v", got, earth)
	}
}

// The positions of all parts count, because a computation visits all of them.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int{pointText(1, 2): 1, across: 2, inner: 4, ringed: 8, pair: 7} {
		if got := parse(t, text).Size(); got != want {
			t.Errorf("%s has the size %d, want %d", text, got, want)
		}
	}
}

func TestInvalidGeometries(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{
			`{"type":"Point","coordinates":[133.75682784306348,-184.38876194345323]}`,
			"Latitude values must be between -90 and 90 degrees.",
		},
		{`{"type":"Point","coordinates":[181,0]}`, "Longitude values must be between -180 and 180 degrees."},
		{`{"type":"Point","coordinates":[1]}`, "A position must be an array of a longitude and a latitude."},
		{
			`{"type":"Point","coordinates":"x"}`,
			"The coordinates of a Point must be an array of a longitude and a latitude.",
		},
		{
			`{"type":"Circle","coordinates":[1,2]}`,
			`The type is "Circle": want Point, LineString, Polygon or MultiPolygon.`,
		},
		{`42`, "The value is not a GeoJSON object with the members type and coordinates."},
		{
			`{"type":"LineString","coordinates":[[0,0]]}`,
			"The coordinates of a LineString must be an array of two or more positions.",
		},
		{
			`{"type":"LineString","coordinates":[[0,0],[0,0]]}`,
			"The positions of a LineString must not all be the same.",
		},
		{`{"type":"LineString","coordinates":[[0,0],[180,0]]}`, "Two consecutive positions are opposite each other on " +
			"the earth, so the edge between them is not defined."},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[1,0],[0,1]]]}`,
			"A ring of a Polygon must have four or more positions.",
		},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[1,0],[0,1],[0,2]]]}`,
			"The first and the last position of a ring must be the same.",
		},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,0],[0,0]]]}`,
			"A ring of a Polygon must have three or more different positions.",
		},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[2,2],[2,0],[0,2],[0,0]]]}`,
			"The rings of the Polygon cross themselves or each other.",
		},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[9,0],[0,0],[9,9],[0,0]]]}`,
			"A ring of the Polygon has a position twice.",
		},
		{
			`{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,9],[0,0]],[[3,3],[30,3],[3,6],[3,3]]]}`,
			"The rings of the Polygon cross themselves or each other.",
		},
		{`{"type":"Polygon","coordinates":[]}`, "A Polygon must have a ring."},
		{`{"type":"Polygon","coordinates":[1]}`, "The coordinates of a Polygon must be an array of rings, and those of a " +
			"MultiPolygon an array of polygons."},
	} {
		if _, err := Parse([]byte(test.text)); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
}

// Any text is a geometry or has a reason, and relations of geometries hold both ways.
func FuzzParse(f *testing.F) {
	for _, text := range []string{europe, ringed, rest, pair, line, pointText(1, 2), `{"type":"Point"}`, `[]`} {
		f.Add(text, europe)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		a, err := Parse([]byte(first))
		b, err2 := Parse([]byte(second))
		if err != nil || err2 != nil || a.Size()*b.Size() > 10_000 {
			return
		}
		if Intersects(a, b) != Intersects(b, a) {
			t.Errorf("%s and %s intersect in one direction only", first, second)
		}
		if d := Distance(a, b); math.IsNaN(d) || d < 0 {
			t.Error(fmt.Sprint(first, " is ", d, " m from ", second))
		}
		Within(a, b)
	})
}
