// In place of packages that are loaded and never called.
module.exports = {};
