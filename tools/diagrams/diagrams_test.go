package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files must be what this program draws, so that a change of the look reaches all of them.
func TestThePicturesAreThoseOfTheProgram(t *testing.T) {
	for _, d := range diagrams() {
		have, err := os.ReadFile(filepath.Join("../../docs/pictures", d.fileName()))
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != d.svg() {
			t.Errorf("%s is not what the program draws: run go run ./tools/diagrams docs/pictures", d.fileName())
		}
	}
}

// Each text fits, each file is XML, and each picture is on the page with a text for readers who do not see it.
func TestEachPictureCanBeRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range diagrams() {
		for _, text := range d.misfits {
			t.Errorf("%s: %q is wider than its place", d.name, text)
		}
		parser := xml.NewDecoder(strings.NewReader(d.svg()))
		for {
			if _, err := parser.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", d.name, err)
			}
		}
		if d.title == "" || len(d.desc) < 80 {
			t.Errorf("%s lacks a title or a description", d.name)
		}
		if !strings.Contains(string(page), "]("+"pictures/"+d.fileName()+")") {
			t.Errorf("docs/concepts.md does not show %s", d.fileName())
		}
	}
}

// A text that does not fit is an error, and nothing is written.
func TestATextThatDoesNotFitIsRefused(t *testing.T) {
	d := &diagram{name: "narrow"}
	d.box(0, 0, 40, 20, plain, "much too long for this box")
	if len(d.misfits) != 1 {
		t.Errorf("misfits: %q, want the text", d.misfits)
	}
}
