package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/harness"
)

// report is what comes out.
type report struct {
	name  string // of the section
	out   io.Writer
	log   func(format string, args ...any)
	parts []string // Markdown
	plots []plot
}

// plot is a file beside the document.
type plot struct{ file, svg string }

// add prints a table and keeps it.
func (r *report) add(t *table) {
	r.parts = append(r.parts, t.String())
	_, _ = fmt.Fprintf(r.out, "\n%s\n", t)
}

// say adds a paragraph.
func (r *report) say(text string) { r.parts = append(r.parts, strings.TrimSpace(text)+"\n") }

// draw adds a plot.
func (r *report) draw(name, alt, svg string) {
	p := plot{file: "benchmarks-" + name + ".svg", svg: svg}
	r.plots = append(r.plots, p)
	r.parts = append(r.parts, fmt.Sprintf("![%s](%s)\n", alt, p.file))
}

// write puts everything into the section of docs/benchmarks.md that is ours, and the plots beside
// it.
func (r *report) write(ctx context.Context) error {
	root, err := harness.ModuleDir(ctx)
	if err != nil {
		return err
	}
	docs := filepath.Join(root, "docs")
	for _, p := range r.plots {
		if err := os.WriteFile(filepath.Join(docs, p.file), []byte(p.svg), 0o644); err != nil { // #nosec G306 -- a document
			return err
		}
	}
	path := filepath.Join(docs, "benchmarks.md")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := replaceSection(string(old), r.name, strings.Join(r.parts, "\n")+"\n"+machine(time.Now()))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) // #nosec G306 G703 -- a document of this repository
}

// replaceSection replaces what stands between the two marks of a section, or adds the section to
// the end.
func replaceSection(document, name, section string) (string, error) {
	begin, end := fmt.Sprintf("<!-- begin: make bench writes this: %s -->", name), fmt.Sprintf("<!-- end: %s -->", name)
	fresh := begin + "\n\n" + strings.TrimSpace(section) + "\n\n" + end
	before, rest, begun := strings.Cut(document, begin)
	if !begun {
		return strings.TrimRight(document, "\n") + "\n\n" + fresh + "\n", nil
	}
	_, after, ended := strings.Cut(rest, end)
	if !ended {
		return "", errors.New("the section " + name + " begins and does not end: put the line " + end + " where it should")
	}
	return before + fresh + after, nil
}

// machine says where and when something was measured.
func machine(at time.Time) string {
	return fmt.Sprintf("Measured on %s with %d cores (%s), %s, %s.\n",
		machineModel(), runtime.NumCPU(), machineKernel(), runtime.Version(), at.UTC().Format(time.DateOnly))
}
