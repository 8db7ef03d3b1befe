"""``python -m etl_assets`` is the console script ``etl-assets``."""

from etl_assets.cli import main

if __name__ == "__main__":
    main()
