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

// folder has the mutants, in subfolders by what they break.
const folder = "test/mutants"

// mutant is a change of the code that breaks a rule. Its file looks like this:
//
//	A caller whose right has expired while the answer waited is answered from memory.
//	breaks: promise: who may not see it
//	run: ./proxy
//
//	-- proxy/lastcheck.go --
//		if !current.allowed {
//	-- mutant --
//		if false {
//
// The text before "-- mutant --" must be in the changed file exactly once. The line "breaks:" names the broken rule, for
// readers only.
type mutant struct {
	name     string
	sentence string  // what the mutant does wrong
	command  command // the tests that must fail
	file     string  // the file that is changed

	before, after []byte // after replaces before
}

// readAll returns the mutants whose names match, or an error that names each file that cannot be read as a mutant.
func readAll(root string, names *regexp.Regexp) ([]mutant, error) {
	var all []mutant
	var parseErrs []error
	err := fs.WalkDir(os.DirFS(root), folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".mutant" {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, folder+"/"), ".mutant")
		if !names.MatchString(name) {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path)) // #nosec G304 -- a file of this repository
		if err != nil {
			return err
		}
		m, err := parse(string(text))
		if err != nil {
			parseErrs = append(parseErrs, fmt.Errorf("%s: %w", path, err))
		}
		m.name = name
		all = append(all, m)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no mutant is called %q", names)
	}
	return all, errors.Join(append(parseErrs, err)...)
}

var format = regexp.MustCompile(`(?s)^([^\n]+)\nbreaks: [^\n]+\nrun: ([^\n]+)\n\n-- (\S+) --\n(.+\n)-- mutant --\n(.*)$`)

func parse(text string) (mutant, error) {
	part := format.FindStringSubmatch(text)
	if part == nil {
		return mutant{}, errors.New("a mutant has a sentence, breaks:, run:, a blank line, -- file -- and -- mutant --")
	}
	return mutant{
		sentence: part[1], command: command(part[2]),
		file: part[3], before: []byte(part[4]), after: []byte(part[5]),
	}, nil
}

// changedFile returns the content of the mutant's file after the change. The file must have the text to replace exactly once.
func (m mutant) changedFile(root string) ([]byte, error) {
	original, err := os.ReadFile(filepath.Join(root, m.file)) // #nosec G304 -- a file of this repository
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(original, m.before); n != 1 {
		return nil, fmt.Errorf("its text is %d times in %s, not once: adapt the mutant so that it breaks the same rule", n, m.file)
	}
	return bytes.Replace(original, m.before, m.after, 1), nil
}

// overlay writes the changed file into dir, with an overlay file that names it, and returns the path for go's -overlay.
func (m mutant) overlay(root, dir string) (string, error) {
	mutated, err := m.changedFile(root)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, strings.ReplaceAll(m.name, "/", "-"))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): path + ".go"}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(path+".go", mutated, 0o600), os.WriteFile(path+".json", replace, 0o600))
	return path + ".json", err
}

// groupByCommand groups mutants that have the same command. It returns two closed channels with groups: those for suites, whose
// tests run listproxy as a process, and those for unit tests.
func groupByCommand(mutants []mutant) (suites, unitTests <-chan []mutant) {
	groups := map[command][]mutant{}
	for _, m := range mutants {
		groups[m.command] = append(groups[m.command], m)
	}
	inSuites, inUnitTests := make(chan []mutant, len(groups)), make(chan []mutant, len(groups))
	for _, c := range slices.Sorted(maps.Keys(groups)) {
		if strings.HasPrefix(string(c), "./test/") {
			inSuites <- groups[c]
		} else {
			inUnitTests <- groups[c]
		}
	}
	close(inSuites)
	close(inUnitTests)
	return inSuites, inUnitTests
}
