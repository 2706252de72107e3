package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folder has the mutants, in folders by what they break.
const folder = "test/mutants"

// mutant is a change that makes something untrue. A file with one looks like this:
//
//	A caller whose right has expired while the answer waited is answered from memory.
//	breaks: law 1
//	run: ./proxy
//
//	-- proxy/mayanswer.go --
//		if !on.allowed {
//	-- mutant --
//		if false {
//
// The first part of the code must be in its file exactly once.
type mutant struct {
	name string
	// sentence says what is untrue then. (The line "breaks:" is for readers: which laws, rules or lines of the
	// promise say so.)
	sentence string
	command  command
	// file is the one that is changed; in it, before becomes after.
	file          string
	before, after []byte
}

// readAll reads the mutants whose name matches.
func readAll(root string, only *regexp.Regexp) ([]mutant, error) {
	var all []mutant
	var wrong []error
	err := fs.WalkDir(os.DirFS(root), folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".mutant" {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, folder+"/"), ".mutant")
		if !only.MatchString(name) {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path)) // #nosec G304 -- a file of this repository
		if err != nil {
			return err
		}
		m, err := parse(string(text))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", path, err))
		}
		m.name = name
		all = append(all, m)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no mutant is called %q", only)
	}
	return all, errors.Join(append(wrong, err)...)
}

var form = regexp.MustCompile(`(?s)^([^\n]+)\nbreaks: [^\n]+\nrun: ([^\n]+)\n\n-- (\S+) --\n(.+\n)-- mutant --\n(.*)$`)

func parse(text string) (mutant, error) {
	part := form.FindStringSubmatch(text)
	if part == nil {
		return mutant{}, errors.New("a mutant has a sentence, breaks:, run:, a blank line, -- file -- and -- mutant --")
	}
	return mutant{
		sentence: part[1], command: command(part[2]),
		file: part[3], before: []byte(part[4]), after: []byte(part[5]),
	}, nil
}

// apply returns the file as the mutant has it.
func (m mutant) apply(root string) ([]byte, error) {
	original, err := os.ReadFile(filepath.Join(root, m.file)) // #nosec G304 -- a file of this repository
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(original, m.before); n != 1 {
		return nil, fmt.Errorf("its code is %d times in %s: write it anew, so that it breaks the same", n, m.file)
	}
	return bytes.Replace(original, m.before, m.after, 1), nil
}

// overlay writes the file as the mutant has it, and what the go command's -overlay needs, into a
// folder. It returns the path of the latter.
func (m mutant) overlay(root, into string) (string, error) {
	mutated, err := m.apply(root)
	if err != nil {
		return "", err
	}
	path := filepath.Join(into, strings.ReplaceAll(m.name, "/", "-"))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): path + ".go"}})
	if err != nil {
		return "", err
	}
	return path + ".json", errors.Join(os.WriteFile(path+".go", mutated, 0o600), os.WriteFile(path+".json", replace, 0o600))
}

// byCommand groups mutants by command: those whose tests run listproxy as a process, and the others.
func byCommand(mutants []mutant) (suites, others <-chan []mutant) {
	groups := map[command][]mutant{}
	for _, m := range mutants {
		groups[m.command] = append(groups[m.command], m)
	}
	s, o := make(chan []mutant, len(groups)), make(chan []mutant, len(groups))
	for _, c := range slices.Sorted(maps.Keys(groups)) {
		if strings.HasPrefix(string(c), "./test/") {
			s <- groups[c]
		} else {
			o <- groups[c]
		}
	}
	close(s)
	close(o)
	return s, o
}
