package sql

var spatialFunctions = map[string]*function{}
