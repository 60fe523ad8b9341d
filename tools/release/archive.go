package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// archived are the files of every archive beside the binary.
var archived = []string{
	"LICENSE", "NOTICES.txt", "README.md", "CHANGELOG.md", "man/changefeed.1", "man/changefeed-run.1",
	"completions/changefeed.bash", "completions/_changefeed", "completions/changefeed.fish",
	"completions/changefeed.ps1",
}

// content is a file of an archive or a package.
type content struct {
	mode os.FileMode
	text []byte
}

// checkArchive opens the archive of a platform, runs its binary if this machine can, and returns its path.
func (v *verification) checkArchive(platform string) (binary string) {
	name := fmt.Sprintf("changefeed_%s_%s", v.version, platform)
	executable, read, ending := "changefeed", readTar, ".tar.gz"
	if strings.HasPrefix(platform, "windows") {
		executable, read, ending = "changefeed.exe", readZip, ".zip"
	}
	files, err := read(filepath.Join(v.dir, name+ending))
	if err != nil {
		v.blame(name+ending, err)
		return ""
	}
	v.blame(name+ending, missing(files, name+"/", append(archived, executable)))
	for file := range files {
		within, isInside := strings.CutPrefix(file, name+"/")
		if folder := path.Dir(within); !isInside || folder != "man" && folder != "completions" &&
			!slices.Contains(append(archived, executable), within) {
			v.blame(name+ending, fmt.Errorf("%s is in no place of an archive", file))
		}
	}
	binary, err = v.unpackBinary(platform, files[name+"/"+executable])
	v.blame(name+ending, err)
	fmt.Printf("%s%s: %d files\n", name, ending, len(files))
	return binary
}

// missing returns an error that names the files which are not there, or are empty.
func missing(files map[string]content, folder string, names []string) error {
	var none []string
	for _, name := range names {
		if len(files[folder+name].text) == 0 {
			none = append(none, name)
		}
	}
	if none == nil {
		return nil
	}
	return fmt.Errorf("%s missing or empty", strings.Join(none, ", "))
}

// unpackBinary writes a binary to the scratch folder and checks its version, by running it if this machine can.
func (v *verification) unpackBinary(platform string, c content) (string, error) {
	if c.mode&0o111 == 0 && !strings.HasPrefix(platform, "windows") {
		return "", fmt.Errorf("the binary has mode %v: want an executable", c.mode)
	}
	binary := filepath.Join(v.scratch, platform)
	if err := os.WriteFile(binary, c.text, 0o755); err != nil {
		return "", err
	}
	return binary, v.checkBinary(platform, binary)
}

// checkBinary checks the version in a binary, and what it says of itself if this machine can run it.
func (v *verification) checkBinary(platform, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	if info.Main.Version != v.tag {
		return fmt.Errorf("the binary has version %s: want %s", info.Main.Version, v.tag)
	}
	if setting(info, "vcs.revision") != v.commit || setting(info, "vcs.modified") != "false" ||
		setting(info, "GOOS")+"_"+setting(info, "GOARCH") != platform || setting(info, "CGO_ENABLED") != "0" {
		return fmt.Errorf("the binary was built from %v", info.Settings)
	}
	if !isHere(platform) {
		return nil
	}
	out, err := exec.CommandContext(v.ctx, binary, "version").CombinedOutput()
	want := "changefeed " + v.tag + ", commit " + v.commit + ", go"
	if err != nil || !strings.HasPrefix(string(out), want) {
		return fmt.Errorf("changefeed version says %q, %w: want %s", out, err, want)
	}
	fmt.Printf("%s: %s", platform, out)
	out, err = exec.CommandContext(v.ctx, binary, "version", "--licenses").CombinedOutput()
	if err != nil {
		return err
	}
	return checkLicences(string(out), info)
}

// setting returns a setting of a build.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// checkLicences compares the licences that a binary prints with the modules that are linked into it.
func checkLicences(text string, info *debug.BuildInfo) error {
	for _, module := range info.Deps {
		if !strings.Contains(text, module.Path+" "+module.Version+": ") {
			return fmt.Errorf("--licenses has no licence of %s %s", module.Path, module.Version)
		}
	}
	fmt.Printf("licences of %d modules\n", len(info.Deps))
	return nil
}

// checkModules compares the list of modules of a platform with its binary.
func (v *verification) checkModules(platform, binary string) {
	name := fmt.Sprintf("changefeed_%s_%s.cdx.json", v.version, platform)
	text, err := os.ReadFile(filepath.Join(v.dir, name))
	if err != nil || binary == "" {
		v.blame(name, errors.Join(err, errors.New("nothing to compare")))
		return
	}
	var list struct {
		BOMFormat  string
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &list); err != nil || list.BOMFormat != "CycloneDX" {
		v.blame(name, errors.Join(err, fmt.Errorf("its format is %q", list.BOMFormat)))
		return
	}
	var listed []string
	for _, component := range list.Components {
		listed = append(listed, component.Name+" "+component.Version)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		v.blame(name, err)
		return
	}
	for _, module := range info.Deps {
		if !slices.Contains(listed, module.Path+" "+module.Version) {
			v.blame(name, fmt.Errorf("%s %s is linked, and not in the list", module.Path, module.Version))
		}
	}
	fmt.Printf("%s: %d components, %d modules in the binary\n", name, len(listed), len(info.Deps))
}

// readTar reads a .tar.gz file.
func readTar(file string) (map[string]content, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	files := map[string]content{}
	for t := tar.NewReader(z); ; {
		header, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, err
		case header.Typeflag == tar.TypeDir:
			continue
		case header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name):
			return nil, fmt.Errorf("%s is no file within the archive", header.Name)
		}
		text, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		files[path.Clean(header.Name)] = content{header.FileInfo().Mode(), text}
	}
}

// readZip reads a .zip file.
func readZip(file string) (map[string]content, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	files := map[string]content{}
	for _, f := range z.File {
		if f.FileInfo().IsDir() {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		files[path.Clean(f.Name)] = content{f.Mode(), text}
	}
	return files, nil
}
