package sql

import (
	"github.com/millrace/changefeed/cosmosrest/internal/geo"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Spatial functions: of GeoJSON objects, on the earth (package geo). A value that is no valid geometry makes the
// result undefined, except for the two functions that ask for validity.

// spatialFunctions are the functions by name.
var spatialFunctions = map[string]*function{
	"ST_AREA": {1, 1, false, func(f *frame, args []value) value {
		g, err := f.geometry(args[0])
		if err != nil {
			return value{}
		}
		return numberValue(g.Area())
	}},
	"ST_DISTANCE": ofGeometries(func(a, b *geo.Geometry) value { return numberValue(geo.Distance(a, b)) }),
	"ST_INTERSECTS": ofGeometries(func(a, b *geo.Geometry) value {
		return boolValue(geo.Intersects(a, b))
	}),
	"ST_WITHIN": ofGeometries(func(a, b *geo.Geometry) value { return boolValue(geo.Within(a, b)) }),
	"ST_ISVALID": {1, 1, false, func(f *frame, args []value) value {
		_, err := f.geometry(args[0])
		return boolValue(err == nil)
	}},
	"ST_ISVALIDDETAILED": {1, 1, false, func(f *frame, args []value) value {
		_, err := f.geometry(args[0])
		if err == nil {
			return compositeValue([]byte(`{"valid":true}`))
		}
		return compositeValue(append(rawjson.AppendString([]byte(`{"valid":false,"reason":`), err.Error()), '}'))
	}},
}

// The work for a position of a geometry, and for a pair of edges.
const (
	positionWork = 1 << 10
	edgesWork    = 1 << 9
)

// ofGeometries makes a function of two geometries.
func ofGeometries(compute func(a, b *geo.Geometry) value) *function {
	return &function{2, 2, false, func(f *frame, args []value) value {
		a, err := f.geometry(args[0])
		b, err2 := f.geometry(args[1])
		if err != nil || err2 != nil || !f.spendWork(edgesWork*a.Size()*b.Size()) {
			return value{}
		}
		return compute(a, b)
	}}
}

// geometry reads a geometry.
func (f *frame) geometry(v value) (*geo.Geometry, error) {
	g, err := geo.Parse(v.json())
	if err == nil && !f.spendWork(positionWork*g.Size()) {
		return nil, f.err
	}
	return g, err
}
