module github.com/millrace/changefeed

go 1.26

require github.com/twmb/murmur3 v1.1.8
