module github.com/millrace/changefeed/examples/recipes

go 1.26.0

require github.com/millrace/changefeed v0.0.0

replace github.com/millrace/changefeed => ../..
