// Package report writes what was measured: tables and plots, into docs/benchmarks.md too.
package report

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

// Report is what comes out.
type Report struct {
	Name string // of the section
	Out  io.Writer
	// Log tells how far it is.
	Log func(format string, args ...any)

	parts []string // Markdown
	plots []plot
}

// plot is a file beside the document.
type plot struct{ file, svg string }

// Add prints a table and keeps it.
func (r *Report) Add(t *Table) {
	r.parts = append(r.parts, t.String())
	_, _ = fmt.Fprintf(r.Out, "\n%s\n", t)
}

// Say adds a paragraph.
func (r *Report) Say(text string) { r.parts = append(r.parts, strings.TrimSpace(text)+"\n") }

// Draw adds a plot.
func (r *Report) Draw(name, alt, svg string) {
	p := plot{file: "benchmarks-" + name + ".svg", svg: svg}
	r.plots = append(r.plots, p)
	r.parts = append(r.parts, fmt.Sprintf("![%s](%s)\n", alt, p.file))
}

// Write puts everything into the section of docs/benchmarks.md that is ours, and the plots beside
// it.
func (r *Report) Write(ctx context.Context) error {
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
	text, err := replaceSection(string(old), r.Name, strings.Join(r.parts, "\n")+"\n"+machine(time.Now()))
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
