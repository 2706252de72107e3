// Command stamp gives an SBOM (CycloneDX, JSON) the version and the time of a release, in place of those of
// the moment at which it was made. It reads standard input and writes standard output.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "stamp:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := pflag.NewFlagSet("stamp", pflag.ContinueOnError)
	version := flags.String("version", "", "the version of the program")
	at := flags.String("time", "", "when it was made, as in RFC 3339")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *at == "" {
		return errors.New("--version and --time are needed")
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	stamped, err := stamp(text, *version, *at)
	if err != nil {
		return err
	}
	_, err = out.Write(stamped)
	return err
}

// stamp returns the document with the time, and with the program's version wherever it is named.
func stamp(document []byte, version, at string) ([]byte, error) {
	var bom struct {
		Metadata struct {
			Timestamp string `json:"timestamp"`
			Component struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"component"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(document, &bom); err != nil {
		return nil, fmt.Errorf("the SBOM cannot be read: %w", err)
	}
	program := bom.Metadata.Component
	if program.Name == "" || program.Version == "" {
		return nil, errors.New("the SBOM does not say of which program it is")
	}
	stamped := strings.NewReplacer(
		program.Name+"@"+program.Version, program.Name+"@"+version,
		`"version": "`+program.Version+`"`, `"version": "`+version+`"`,
		`"timestamp": "`+bom.Metadata.Timestamp+`"`, `"timestamp": "`+at+`"`,
	).Replace(string(document))
	return []byte(stamped), nil
}
