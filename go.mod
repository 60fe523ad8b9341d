module github.com/millrace/changefeed

go 1.26
