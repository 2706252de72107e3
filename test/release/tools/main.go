// Command image writes the image of a release, for several platforms, as an OCI layout in a .tar file. It makes the image that
// the Dockerfile describes, without Docker, from the programs in the archives of the release. The file's bytes are the same on
// every machine. Run it in the repository's folder:
//
//	image --output FILE --version VERSION --time TIME linux/ARCH=PROGRAM...
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	output := flags.String("output", "", "the file to write")
	version := flags.String("version", "", "the version of the release")
	at := flags.String("time", "", "the time of the release, as in RFC 3339")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := time.Parse(time.RFC3339, *at)
	if err != nil {
		return fmt.Errorf("--time: %w", err)
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	config, err := readConfig("Dockerfile")
	if err != nil {
		return err
	}
	config.Labels["org.opencontainers.image.version"] = *version
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range flags.Args() {
		name, program, ok := strings.Cut(arg, "=")
		platform, err := v1.ParsePlatform(name)
		if !ok || err != nil || platform.Architecture == "" {
			return fmt.Errorf("%q: want linux/ARCH=PROGRAM", arg)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		image, err := build(*platform, config, created, license, content)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return write(*output, index, created)
}

// readConfig returns the image's configuration from the last stage of a Dockerfile, which is FROM scratch.
func readConfig(dockerfile string) (config v1.Config, err error) {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return config, err
	}
	_, stage, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok {
		return config, fmt.Errorf("%s: nothing is FROM scratch", dockerfile)
	}
	config.ExposedPorts, config.Labels = map[string]struct{}{}, map[string]string{}
	for line := range strings.Lines(stage) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "USER":
			config.User = rest
		case "ENTRYPOINT":
			err = errors.Join(err, json.Unmarshal([]byte(rest), &config.Entrypoint))
		case "EXPOSE":
			for port := range strings.FieldsSeq(rest) {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case "LABEL":
			for label := range strings.FieldsSeq(rest) {
				name, value, _ := strings.Cut(label, "=")
				config.Labels[name] = value
			}
		case "COPY", "#", "": // build knows what to copy
		default:
			err = errors.Join(err, fmt.Errorf("%s: unknown instruction %s", dockerfile, instruction))
		}
	}
	return config, err
}

// build makes the image of one platform. Its only layer has the program, the license and the CAs.
func build(platform v1.Platform, settings v1.Config, created time.Time, license, program []byte) (v1.Image, error) {
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	if err := errors.Join(archive.AddFS(fstest.MapFS{
		"etc":                               {Mode: fs.ModeDir | 0o755, ModTime: created},
		"etc/ssl":                           {Mode: fs.ModeDir | 0o755, ModTime: created},
		"etc/ssl/certs":                     {Mode: fs.ModeDir | 0o755, ModTime: created},
		"etc/ssl/certs/ca-certificates.crt": {Data: roots(), Mode: 0o644, ModTime: created},
		"LICENSE":                           {Data: license, Mode: 0o644, ModTime: created},
		"listproxy":                         {Data: program, Mode: 0o755, ModTime: created},
	}), archive.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Created = v1.Time{Time: created}
	config.Config = settings
	return mutate.ConfigFile(image, config)
}

// roots returns Mozilla's CAs of public servers in PEM. It leaves out CAs that are trusted only under conditions: a file of
// certificates cannot express conditions.
func roots() []byte {
	var certs bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&certs, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return certs.Bytes()
}

// write writes the index, and the images that it names, into a .tar file. All files in it have the time modified.
func write(output string, index v1.ImageIndex, modified time.Time) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index); err != nil {
		return err
	}
	root, packed := os.DirFS(dir), fstest.MapFS{} // packed gives all files the same time
	if err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			packed[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: modified}
			return nil
		}
		content, err := fs.ReadFile(root, name)
		packed[name] = &fstest.MapFile{Data: content, Mode: 0o644, ModTime: modified}
		return err
	}); err != nil {
		return err
	}
	out, err := os.Create(output)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	return errors.Join(archive.AddFS(packed), archive.Close(), out.Close())
}
